"""Drawings of people and animals; ``pose`` moves legs, heads and arms."""

from __future__ import annotations

from reweigh.world.drawings.pen import GOLD, INK, LARGE, MEDIUM, SKIN, WHITE, Color, Pen, drawing


def _eye(pen: Pen, x: float, y: float, r: float = 2.4) -> None:
    pen.oval(INK, x, y, r)


def _legs(pen: Pen, xs: tuple[float, ...], top: float, bottom: float, width: float, fill: Color) -> None:
    swing = 8 * (pen.pose - 0.5)
    for i, x in enumerate(xs):
        pen.line(fill, width, (x, top), (x + (swing if i % 2 else -swing), bottom))


@drawing("person", "red blue green yellow purple", (0.34, 0.46))
def person(pen: Pen) -> None:
    trousers = (52, 62, 104)
    pen.line(trousers, 10, (45, 60), (42, 94))
    pen.line(trousers, 10, (55, 60), (59, 94))
    pen.line(INK, 6, (40, 96), (34, 96))
    pen.line(INK, 6, (60, 96), (66, 96))
    lift = 34 * pen.pose
    pen.line(SKIN, 7, (37, 36), (26, 62 - lift * 0.3))
    pen.line(SKIN, 7, (63, 36), (75, 62 - lift))
    pen.box(pen.main, 35, 30, 65, 64, 8)
    pen.line(pen.dark, 8, (38, 36), (33, 46))
    pen.line(pen.dark, 8, (62, 36), (68, 45 - lift * 0.3))
    pen.oval(SKIN, 50, 17, 12, 13)
    pen.pie((92, 56, 34), 50, 14, 13, 13, 180, 360)
    _eye(pen, 46, 18, 1.6)
    _eye(pen, 54, 18, 1.6)


@drawing("bird", "blue red yellow", (0.24, 0.33))
def bird(pen: Pen) -> None:
    pen.line(GOLD, 4, (46, 72), (44, 92))
    pen.line(GOLD, 4, (56, 72), (58, 92))
    pen.poly(pen.dark, (70, 52), (99, 40), (96, 56), (74, 68))
    pen.blob(pen.main, (20, 40), (34, 34), (62, 44), (80, 58), (66, 76), (42, 78), (24, 62))
    pen.oval(pen.main, 28, 32, 16)
    pen.blob(pen.light, (26, 52), (40, 60), (46, 74), (32, 70))
    lift = 26 * pen.pose
    pen.poly(pen.dark, (42, 50), (72, 54 - lift), (88, 62 - lift), (62, 68))
    pen.poly((242, 160, 40), (14, 28), (0, 36), (15, 40))
    _eye(pen, 24, 28, 3.4)


@drawing("cat", "orange gray black", MEDIUM)
def cat(pen: Pen) -> None:
    pen.arc(pen.main, 8, 78, 66, 16, 26 + 6 * pen.pose, -60, 100)
    pen.blob(pen.main, (34, 52), (56, 44), (74, 62), (78, 92), (54, 95), (28, 93), (28, 68))
    pen.oval(pen.light, 48, 78, 12, 15)
    pen.poly(pen.main, (16, 30), (18, 2), (38, 16))
    pen.poly(pen.main, (44, 16), (62, 2), (66, 30))
    pen.poly((240, 170, 170), (21, 20), (22, 9), (31, 16))
    pen.poly((240, 170, 170), (51, 16), (59, 9), (61, 20))
    pen.oval(pen.main, 41, 34, 26, 22)
    pen.line(pen.dark, 3, (41, 14), (41, 22))
    pen.line(pen.dark, 3, (33, 15), (35, 22))
    pen.line(pen.dark, 3, (49, 15), (47, 22))
    for x in (31, 51):
        pen.oval((150, 206, 90), x, 33, 5.5, 6)
        pen.oval(INK, x, 33, 2, 5)
    pen.poly((230, 110, 120), (37, 41), (45, 41), (41, 46))
    for y in (42, 47):
        pen.line(WHITE, 1.6, (32, y), (10, y - 2))
        pen.line(WHITE, 1.6, (50, y), (72, y - 2))
    pen.oval(pen.light, 38, 93, 8, 5)
    pen.oval(pen.light, 58, 93, 8, 5)


@drawing("dog", "brown white black", (0.3, 0.4))
def dog(pen: Pen) -> None:
    pen.line(pen.main, 7, (86, 52), (98, 34 - 12 * pen.pose))
    _legs(pen, (36, 48, 74, 84), 62, 94, 9, pen.dark)
    pen.blob(pen.main, (30, 44), (60, 42), (90, 48), (90, 70), (60, 76), (32, 72))
    pen.oval(pen.main, 26, 34, 20, 18)
    pen.box(pen.light, 0, 34, 22, 50, 7)
    pen.oval(INK, 3, 37, 5, 4)
    pen.blob(pen.dark, (34, 18), (46, 24), (48, 52), (38, 54), (32, 36))
    _eye(pen, 20, 27, 3.2)
    pen.line((212, 45, 48), 5, (28, 54), (44, 50))
    pen.line((230, 110, 120), 5, (10, 52), (9, 58))


@drawing("horse", "brown white black", LARGE)
def horse(pen: Pen) -> None:
    pen.blob(pen.dark, (84, 42), (99, 50), (98, 82), (90, 70), (82, 54))
    _legs(pen, (36, 44, 72, 80), 60, 97, 7, pen.dark)
    pen.blob(pen.main, (30, 42), (56, 44), (82, 38), (90, 54), (82, 66), (56, 64), (34, 68))
    head = 10 * pen.pose
    pen.poly(pen.main, (30, 62), (44, 44), (32, 8 + head), (18, 14 + head))
    pen.poly(pen.main, (34, 6 + head), (20, 8 + head), (0, 30 + head), (6, 38 + head), (24, 26 + head))
    pen.poly(pen.main, (26, 10 + head), (28, -2 + head), (34, 8 + head))
    pen.poly(pen.dark, (32, 4 + head), (44, 20 + head), (50, 44), (42, 46), (32, 22 + head))
    _eye(pen, 18, 17 + head, 2.6)


@drawing("sheep", "white gray", (0.3, 0.4))
def sheep(pen: Pen) -> None:
    _legs(pen, (36, 46, 68, 78), 66, 94, 6, INK)
    wool = pen.main
    for x, y, r in (
        (36, 44, 14),
        (52, 36, 15),
        (70, 38, 15),
        (84, 50, 13),
        (80, 64, 13),
        (60, 68, 14),
        (40, 64, 14),
    ):
        pen.oval(pen.light if y < 45 else wool, x, y, r)
    pen.oval(wool, 58, 52, 24, 18)
    for x, y in ((48, 46), (62, 44), (74, 52), (56, 60)):
        pen.arc(pen.dark, 2.2, x, y, 6, 5, 20, 160)
    head = 8 * pen.pose
    pen.oval(INK, 36, 40 + head, 8, 4)
    pen.oval((66, 60, 62), 22, 46 + head, 13, 16)
    pen.oval(wool, 24, 32 + head, 11, 7)
    pen.oval(WHITE, 17, 43 + head, 3)
    _eye(pen, 16.5, 43 + head, 1.6)


@drawing("cow", "white", LARGE)
def cow(pen: Pen) -> None:
    spot = (52, 46, 48)
    pen.line(spot, 4, (95, 36), (98, 66))
    _legs(pen, (36, 46, 76, 88), 62, 95, 8, (226, 222, 216))
    pen.oval((240, 160, 168), 66, 70, 9, 6)
    pen.box(pen.main, 28, 30, 96, 70, 12)
    pen.blob(spot, (48, 30), (66, 30), (64, 46), (52, 50))
    pen.blob(spot, (76, 44), (94, 38), (96, 58), (82, 64))
    pen.blob(spot, (34, 56), (46, 58), (44, 70), (34, 70))
    head = 8 * pen.pose
    pen.line((222, 206, 160), 4, (12, 18 + head), (6, 6 + head))
    pen.line((222, 206, 160), 4, (30, 18 + head), (36, 6 + head))
    pen.oval(spot, 0, 24 + head, 8, 5)
    pen.oval(spot, 41, 24 + head, 8, 5)
    pen.blob(spot, (8, 18 + head), (34, 18 + head), (33, 46 + head), (9, 46 + head))
    pen.box(WHITE, 17, 18 + head, 25, 40 + head)
    pen.oval((240, 170, 172), 21, 46 + head, 15, 10)
    _eye(pen, 16, 45 + head, 2.4)
    _eye(pen, 26, 45 + head, 2.4)
    pen.oval(WHITE, 12, 28 + head, 3)
    pen.oval(WHITE, 30, 28 + head, 3)


@drawing("elephant", "gray", LARGE)
def elephant(pen: Pen) -> None:
    for x in (42, 56, 76, 88):
        pen.box(pen.dark, x - 6, 58, x + 6, 95, 3)
        pen.line(WHITE, 2.5, (x - 4, 93), (x + 4, 93))
    pen.line(pen.dark, 3, (96, 46), (99, 68))
    pen.blob(pen.main, (34, 26), (62, 18), (90, 26), (97, 50), (92, 70), (60, 74), (38, 70))
    pen.oval(pen.main, 28, 36, 20, 20)
    swing = 16 * pen.pose
    pen.line(pen.main, 12, (14, 40), (9, 62), (8, 80 - swing), (0, 88 - 2 * swing))
    pen.blob(pen.dark, (30, 20), (54, 16), (60, 40), (46, 58), (32, 48))
    pen.blob(pen.light, (35, 26), (50, 22), (54, 40), (44, 50), (36, 44))
    pen.poly(WHITE, (16, 50), (22, 54), (6, 68))
    _eye(pen, 20, 32, 3)


@drawing("bear", "brown", (0.33, 0.44))
def bear(pen: Pen) -> None:
    for x in (32, 46, 74, 88):
        pen.box(pen.dark, x - 8, 60, x + 8, 94, 5)
    pen.blob(pen.main, (24, 42), (46, 24), (72, 26), (96, 44), (98, 66), (76, 76), (40, 76))
    head = 10 * pen.pose
    for x in (12, 36):
        pen.oval(pen.dark, x, 22 + head, 7)
    pen.oval(pen.main, 23, 36 + head, 20, 18)
    pen.oval((206, 164, 118), 12, 43 + head, 11, 8)
    pen.oval(INK, 4, 40 + head, 5, 4)
    _eye(pen, 17, 30 + head, 3)
    _eye(pen, 30, 31 + head, 3)


@drawing("zebra", "white", LARGE)
def zebra(pen: Pen) -> None:
    _legs(pen, (36, 45, 74, 83), 60, 97, 7, WHITE)
    for x in (36, 45, 74, 83):
        for y in (72, 84):
            pen.line(INK, 4, (x - 4, y), (x + 4, y))
    pen.line(INK, 4, (90, 44), (97, 72))
    pen.blob(WHITE, (28, 42), (56, 40), (86, 36), (93, 54), (84, 67), (56, 65), (34, 68))
    for x in (40, 50, 60, 70, 80):
        pen.line(INK, 4.6, (x, 41), (x + 4, 64))
    head = 10 * pen.pose
    pen.poly(WHITE, (28, 62), (42, 42), (32, 8 + head), (18, 14 + head))
    pen.poly(WHITE, (34, 6 + head), (20, 8 + head), (0, 30 + head), (6, 38 + head), (24, 26 + head))
    pen.poly(INK, (0, 30 + head), (6, 38 + head), (10, 36 + head), (5, 24 + head))
    pen.line(INK, 5, (30, 2 + head), (44, 38))
    for y in (24, 36, 48):
        pen.line(INK, 4, (22 + y / 9, y + head), (36 + y / 12, y - 4 + head))
    _eye(pen, 18, 17 + head, 2.6)


@drawing("giraffe", "yellow", (0.4, 0.5))
def giraffe(pen: Pen) -> None:
    spot = (176, 104, 42)
    _legs(pen, (46, 54, 78, 85), 64, 98, 5.5, pen.main)
    pen.line(spot, 3, (90, 54), (96, 76))
    pen.blob(pen.main, (40, 52), (64, 48), (88, 50), (92, 64), (66, 72), (44, 70))
    lean = 8 * pen.pose
    top = 26 + lean
    pen.poly(pen.main, (40, 66), (56, 52), (top + 8, 10), (top - 6, 12))
    pen.line(spot, 3, (top - 1, 8), (top - 2, 0))
    pen.line(spot, 3, (top + 6, 8), (top + 7, 0))
    pen.poly(pen.main, (top + 10, 6), (top - 6, 6), (top - 22, 18), (top - 18, 24), (top + 4, 18))
    for x, y in ((52, 56), (64, 54), (77, 56), (57, 65), (70, 64), (83, 62)):
        pen.oval(spot, x, y, 5, 4)
    for share in (0.2, 0.42, 0.64, 0.86):
        pen.oval(spot, top + 2 + (46 - top) * share, 10 + 48 * share, 4.4, 4)
    _eye(pen, top - 5, 11, 2.2)


@drawing("teddy bear", "brown pink", (0.25, 0.34))
def teddy_bear(pen: Pen) -> None:
    for x in (26, 74):
        pen.oval(pen.main, x, 12, 11)
        pen.oval(pen.light, x, 12, 6)
        pen.oval(pen.main, x, 88, 14, 11)
        pen.oval(pen.light, x, 89, 8, 7)
    lift = 14 * pen.pose
    pen.line(pen.main, 15, (34, 56), (14, 68 - lift))
    pen.line(pen.main, 15, (66, 56), (86, 68 - lift))
    pen.oval(pen.main, 50, 68, 25, 24)
    pen.oval(pen.light, 50, 70, 15, 15)
    pen.oval(pen.main, 50, 30, 28, 25)
    pen.oval(pen.light, 50, 38, 12, 9)
    pen.oval(INK, 50, 34, 5, 3.6)
    _eye(pen, 38, 25, 3.4)
    _eye(pen, 62, 25, 3.4)
    pen.poly((214, 45, 48), (36, 52), (50, 57), (36, 63))
    pen.poly((214, 45, 48), (64, 52), (50, 57), (64, 63))
