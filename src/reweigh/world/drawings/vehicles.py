"""Drawings of vehicles and of what stands along a street."""

from __future__ import annotations

from reweigh.world.drawings.pen import GLASS, GOLD, INK, LARGE, MEDIUM, STEEL, WHITE, WOOD, Pen, drawing

TIRE = (44, 44, 48)


def _wheel(pen: Pen, x: float, y: float, r: float) -> None:
    pen.oval(TIRE, x, y, r)
    pen.oval(STEEL, x, y, r * 0.5)


@drawing("bicycle", "red blue green", MEDIUM)
def bicycle(pen: Pen) -> None:
    for x in (22, 78):
        pen.ring(TIRE, 5, x, 66, 19)
        pen.line(STEEL, 1.4, (x - 18, 66), (x + 18, 66))
        pen.line(STEEL, 1.4, (x, 48), (x, 84))
    pen.line(pen.main, 5, (22, 66), (36, 36), (68, 36), (50, 68), (22, 66))
    pen.line(pen.main, 5, (36, 36), (50, 68))
    pen.line(pen.main, 5, (78, 66), (66, 26))
    pen.line(INK, 4, (60, 24), (66, 26), (76, 20))
    pen.line(STEEL, 4, (36, 36), (33, 28))
    pen.line(INK, 6, (26, 26), (41, 26))
    pen.oval(STEEL, 50, 68, 5)


@drawing("car", "red blue white yellow", LARGE)
def car(pen: Pen) -> None:
    pen.poly(pen.main, (20, 50), (34, 28), (68, 28), (84, 50))
    pen.poly(GLASS, (27, 48), (37, 33), (49, 33), (49, 48))
    pen.poly(GLASS, (53, 48), (53, 33), (66, 33), (76, 48))
    pen.box(pen.main, 2, 46, 98, 70, 8)
    pen.line(pen.dark, 2, (51, 48), (51, 68))
    pen.line(pen.dark, 3, (4, 62), (96, 62))
    pen.oval((252, 236, 140), 95, 54, 4, 4)
    pen.oval((220, 50, 50), 5, 54, 3, 4)
    _wheel(pen, 25, 70, 12)
    _wheel(pen, 75, 70, 12)


@drawing("motorcycle", "red black green", (0.32, 0.42))
def motorcycle(pen: Pen) -> None:
    for x in (20, 80):
        pen.ring(TIRE, 8, x, 70, 15)
        pen.oval(STEEL, x, 70, 6)
    pen.line(STEEL, 5, (80, 70), (66, 30))
    pen.line(INK, 4, (54, 22), (66, 28))
    pen.oval((252, 236, 140), 71, 38, 6)
    pen.line(STEEL, 5, (20, 70), (52, 72), (34, 56))
    pen.box(STEEL, 38, 58, 60, 76, 5)
    pen.blob(pen.main, (40, 40), (58, 34), (66, 44), (56, 56), (42, 54))
    pen.blob(INK, (10, 44), (28, 42), (42, 48), (38, 56), (18, 52))
    pen.line(pen.main, 6, (6, 56), (16, 50), (30, 54))
    pen.line(STEEL, 6, (10, 80), (44, 78))


@drawing("airplane", "white blue", LARGE)
def airplane(pen: Pen) -> None:
    pen.poly(pen.dark, (52, 46), (72, 16), (80, 16), (70, 48))
    pen.poly(pen.main, (6, 50), (0, 18), (11, 18), (24, 46))
    pen.blob(pen.main, (4, 48), (40, 40), (84, 42), (99, 52), (86, 62), (40, 64), (12, 58))
    for x in range(32, 80, 8):
        pen.oval((60, 100, 160), x, 49, 2.6)
    pen.poly((60, 100, 160), (86, 45), (95, 50), (85, 50))
    pen.poly(pen.dark, (38, 56), (64, 56), (40, 90), (28, 90))
    pen.poly(pen.dark, (6, 52), (22, 52), (10, 66), (2, 66))
    pen.line((214, 45, 48), 3, (10, 58), (84, 58))


@drawing("bus", "yellow red blue", LARGE)
def bus(pen: Pen) -> None:
    pen.box(pen.main, 2, 22, 98, 76, 6)
    pen.box(pen.light, 4, 24, 96, 30, 3)
    for x in (8, 25, 42, 59):
        pen.box((70, 110, 150), x, 34, x + 13, 50, 2)
    pen.box(GLASS, 77, 34, 95, 70, 2)
    pen.line(INK, 2, (86, 34), (86, 70))
    pen.line(pen.dark, 4, (4, 60), (74, 60))
    pen.oval((252, 236, 140), 96, 70, 3)
    _wheel(pen, 22, 77, 11)
    _wheel(pen, 66, 77, 11)


@drawing("train", "green blue red", LARGE)
def train(pen: Pen) -> None:
    pen.line((110, 92, 76), 4, (0, 92), (100, 92))
    pen.box(INK, 14, 14, 24, 40)
    pen.box(INK, 10, 10, 28, 18, 3)
    pen.oval(GOLD, 42, 36, 8, 9)
    pen.box(pen.main, 6, 38, 64, 70, 10)
    for x in (28, 46):
        pen.line(pen.dark, 3, (x, 39), (x, 69))
    pen.box(pen.dark, 60, 18, 96, 72)
    pen.box(INK, 56, 12, 100, 20, 3)
    pen.box(GLASS, 67, 27, 89, 46)
    pen.poly((200, 50, 48), (8, 70), (0, 88), (20, 88), (24, 70))
    pen.box(INK, 18, 68, 96, 76)
    for x in (28, 46):
        _wheel(pen, x, 82, 8)
    _wheel(pen, 79, 78, 13)
    pen.line((200, 50, 48), 3, (28, 82), (79, 80))
    for x, y, r in ((24, 4, 5), (34, -2, 7)):
        pen.oval((224, 226, 230), x, y, r)


@drawing("truck", "blue white red", LARGE)
def truck(pen: Pen) -> None:
    pen.box((206, 200, 188), 0, 18, 64, 70, 2)
    for x in (16, 32, 48):
        pen.line((168, 162, 150), 2, (x, 20), (x, 68))
    pen.poly(pen.main, (66, 34), (86, 34), (97, 54), (97, 74), (66, 74))
    pen.poly(GLASS, (72, 39), (84, 39), (91, 53), (72, 53))
    pen.box(INK, 0, 70, 97, 76)
    pen.oval((252, 236, 140), 95, 66, 3)
    _wheel(pen, 18, 78, 11)
    _wheel(pen, 44, 78, 11)
    _wheel(pen, 82, 78, 11)


@drawing("boat", "red white brown", (0.34, 0.46))
def boat(pen: Pen) -> None:
    pen.line(WOOD, 4, (50, 2), (50, 74))
    pen.poly(WHITE, (53, 4), (53, 62), (92, 62))
    pen.poly((250, 216, 120), (47, 10), (47, 62), (14, 62))
    pen.poly(pen.main, (4, 68), (96, 68), (80, 92), (20, 92))
    pen.poly(pen.dark, (4, 68), (96, 68), (93, 74), (7, 74))


@drawing("traffic light", "black", (0.3, 0.4))
def traffic_light(pen: Pen) -> None:
    pen.box((96, 98, 104), 46, 70, 54, 100)
    pen.box(pen.main, 30, 2, 70, 74, 7)
    lit = min(int(pen.pose * 3), 2)
    for i, (y, on, off) in enumerate(
        (
            (15, (250, 60, 50), (120, 44, 44)),
            (38, (252, 206, 50), (120, 100, 44)),
            (61, (70, 220, 90), (40, 100, 54)),
        )
    ):
        pen.oval(on if i == lit else off, 50, y, 10)
        pen.arc((84, 84, 90), 3, 50, y, 12, 11, 190, 350)


@drawing("fire hydrant", "red yellow", (0.24, 0.33))
def fire_hydrant(pen: Pen) -> None:
    pen.box(pen.dark, 24, 86, 76, 96, 2)
    pen.box(pen.main, 32, 30, 68, 88)
    pen.pie(pen.main, 50, 30, 20, 22, 180, 360)
    pen.box(pen.dark, 26, 28, 74, 36, 2)
    pen.box(pen.dark, 45, 2, 55, 10, 2)
    pen.box(pen.main, 14, 46, 86, 62, 3)
    pen.box(pen.dark, 10, 44, 18, 64, 2)
    pen.box(pen.dark, 82, 44, 90, 64, 2)
    pen.oval(pen.light, 50, 54, 11)
    pen.oval(pen.dark, 50, 54, 5)


@drawing("stop sign", "red", (0.3, 0.4), flips=False)
def stop_sign(pen: Pen) -> None:
    pen.box(STEEL, 46, 56, 54, 100)
    for scale, fill in ((32.0, WHITE), (28.0, pen.main)):
        t = scale * 0.414
        corners = ((-t, -1), (t, -1), (1, -t), (1, t), (t, 1), (-t, 1), (-1, t), (-1, -t))
        pen.poly(
            fill,
            *(
                (50 + (x if abs(x) > 1 else x * scale), 33 + (y if abs(y) > 1 else y * scale))
                for x, y in corners
            ),
        )
    w = 3.4
    pen.line(WHITE, w, (34, 28), (29, 27), (28, 31), (34, 35), (33, 40), (28, 39))
    pen.line(WHITE, w, (37, 27), (45, 27))
    pen.line(WHITE, w, (41, 27), (41, 40))
    pen.ring(WHITE, w, 53, 33.5, 6)
    pen.line(WHITE, w, (64, 40), (64, 27), (70, 28), (70, 33), (64, 34))


@drawing("parking meter", "gray blue", (0.3, 0.4))
def parking_meter(pen: Pen) -> None:
    pen.box((96, 98, 104), 45, 56, 55, 100)
    pen.box(pen.main, 28, 22, 72, 60, 6)
    pen.pie(pen.main, 50, 26, 22, 24, 180, 360)
    pen.pie(WHITE, 50, 27, 16, 17, 180, 360)
    pen.line((214, 45, 48), 3, (50, 27), (40 + 20 * pen.pose, 15))
    pen.box(INK, 46, 34, 54, 38)
    pen.box(pen.dark, 36, 44, 64, 54, 2)


@drawing("bench", "brown green", (0.34, 0.46))
def bench(pen: Pen) -> None:
    for x in (16, 84):
        pen.line((70, 72, 80), 6, (x, 30), (x, 88))
        pen.line((70, 72, 80), 5, (x - 8, 62), (x + 8, 62))
    for y in (30, 41):
        pen.box(pen.main, 4, y, 96, y + 8, 2)
    pen.box(pen.light, 2, 58, 98, 66, 2)
    pen.box(pen.dark, 4, 67, 96, 72, 2)
