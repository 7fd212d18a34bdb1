"""Drawings of furniture and household machines."""

from __future__ import annotations

from reweigh.world.drawings.pen import INK, LARGE, MEDIUM, SMALL, STEEL, WHITE, WOOD, Pen, drawing


@drawing("potted plant", "green", (0.3, 0.4))
def potted_plant(pen: Pen) -> None:
    for i, (x, y) in enumerate(((14, 38), (86, 38), (32, 14), (70, 14), (51, 3))):
        mx, my = (50 + x) / 2, (y + 62) / 2
        pen.blob(pen.dark if i < 2 else pen.main, (50, 66), (mx - 9, my - 3), (x, y), (mx + 9, my + 1))
        pen.line(pen.light, 1.8, (50, 64), (x, y + 5))
    pen.poly((198, 98, 58), (28, 68), (72, 68), (66, 98), (34, 98))
    pen.box((220, 122, 78), 25, 62, 75, 72, 2)


@drawing("chair", "brown white red", (0.32, 0.42))
def chair(pen: Pen) -> None:
    pen.line(pen.dark, 6, (30, 58), (26, 97))
    pen.line(pen.dark, 6, (72, 58), (76, 97))
    pen.line(pen.dark, 5, (40, 58), (38, 88))
    pen.line(pen.dark, 5, (66, 58), (68, 88))
    pen.line(pen.main, 7, (28, 4), (31, 56))
    pen.line(pen.main, 7, (68, 4), (66, 56))
    for y in (10, 24, 38):
        pen.line(pen.light, 6, (30, y), (67, y))
    pen.poly(pen.main, (26, 52), (70, 52), (80, 64), (22, 64))


@drawing("couch", "blue red brown", LARGE)
def couch(pen: Pen) -> None:
    for x in (14, 86):
        pen.line(WOOD, 6, (x, 80), (x, 88))
    pen.box(pen.dark, 12, 28, 88, 66, 8)
    pen.line(pen.main, 3, (50, 32), (50, 52))
    pen.box(pen.main, 12, 54, 88, 80, 4)
    pen.line(pen.dark, 3, (50, 56), (50, 78))
    pen.box(pen.light, 2, 44, 18, 80, 6)
    pen.box(pen.light, 82, 44, 98, 80, 6)
    pen.poly((250, 216, 120), (22, 36), (40, 40), (37, 57), (20, 54))


@drawing("bed", "blue green pink", LARGE)
def bed(pen: Pen) -> None:
    pen.box(WOOD, 2, 22, 10, 90, 2)
    pen.box(WOOD, 90, 46, 98, 90, 2)
    pen.box((250, 246, 236), 8, 54, 92, 68, 3)
    pen.box(WHITE, 12, 42, 36, 58, 6)
    pen.line((200, 204, 212), 2, (14, 52), (32, 52))
    pen.poly(pen.main, (38, 50), (92, 50), (92, 78), (30, 78))
    pen.poly(pen.light, (38, 50), (48, 50), (40, 78), (30, 78))
    pen.box((142, 96, 54), 8, 76, 92, 84)


@drawing("toilet", "white", (0.3, 0.4))
def toilet(pen: Pen) -> None:
    edge = (206, 212, 220)
    pen.box(edge, 56, 6, 92, 50, 5)
    pen.box(WHITE, 59, 14, 89, 50, 3)
    pen.box(STEEL, 64, 20, 74, 25, 2)
    pen.poly(edge, (36, 66), (78, 66), (74, 96), (42, 96))
    pen.blob(WHITE, (8, 52), (60, 50), (84, 52), (74, 74), (44, 80), (16, 70))
    pen.oval(edge, 40, 52, 36, 8)
    pen.oval((150, 190, 216), 38, 53, 27, 4.6)


@drawing("sink", "white gray", MEDIUM)
def sink(pen: Pen) -> None:
    edge = (196, 204, 214)
    pen.arc(STEEL, 7, 60, 24, 14, 16, 180, 360)
    pen.line(STEEL, 7, (74, 24), (74, 52))
    pen.line((120, 190, 236), 4, (46, 28), (46, 54))
    pen.line(STEEL, 6, (82, 40), (92, 40))
    pen.poly(edge, (40, 70), (60, 70), (58, 98), (42, 98))
    pen.blob(pen.main, (6, 54), (50, 52), (94, 54), (82, 74), (50, 82), (18, 74))
    pen.oval(edge, 50, 55, 44, 8)
    pen.oval((120, 140, 160), 50, 56, 34, 4.6)


@drawing("tv", "black", LARGE)
def tv(pen: Pen) -> None:
    pen.box(INK, 42, 74, 58, 86)
    pen.box(INK, 26, 84, 74, 90, 2)
    pen.box(pen.main, 2, 14, 98, 76, 4)
    pen.box((84, 150, 220), 8, 20, 92, 70)
    pen.poly((70, 170, 96), (8, 70), (8, 58), (34, 46), (62, 60), (92, 50), (92, 70))
    pen.oval((252, 214, 90), 72, 32, 7)


@drawing("laptop", "gray black white", (0.27, 0.36))
def laptop(pen: Pen) -> None:
    pen.box(pen.main, 14, 16, 86, 66, 4)
    pen.box((66, 124, 196), 19, 21, 81, 61)
    for y, x1 in ((30, 60), (39, 68), (48, 50)):
        pen.line((206, 228, 250), 3, (26, y), (x1, y))
    pen.poly(pen.dark, (14, 66), (86, 66), (99, 86), (1, 86))
    pen.poly(pen.light, (20, 69), (80, 69), (86, 78), (14, 78))
    pen.poly(pen.main, (40, 80), (60, 80), (62, 85), (38, 85))


@drawing("keyboard", "white black", (0.27, 0.36), tilts=True)
def keyboard(pen: Pen) -> None:
    pen.box(pen.main, 0, 32, 100, 72, 5)
    key = pen.dark if sum(pen.main) > 400 else (168, 172, 180)
    for y in (37, 46, 55):
        for x in range(5, 94, 10):
            pen.box(key, x, y, x + 8, y + 7, 1)
    pen.box(key, 24, 64, 76, 69, 1)


@drawing("cell phone", "black blue", (0.22, 0.3), tilts=True)
def cell_phone(pen: Pen) -> None:
    pen.box(pen.main, 26, 0, 74, 100, 8)
    pen.box((206, 230, 246), 31, 12, 69, 84)
    for i, fill in enumerate(
        ((230, 80, 70), (250, 190, 60), (90, 180, 100), (80, 130, 220), (170, 100, 200), (250, 140, 80))
    ):
        pen.box(fill, 35 + 17 * (i % 2), 18 + 21 * (i // 2), 48 + 17 * (i % 2), 33 + 21 * (i // 2), 3)
    pen.oval(STEEL, 50, 92, 4)


@drawing("microwave", "white black", (0.3, 0.4))
def microwave(pen: Pen) -> None:
    pen.box(pen.main, 0, 22, 100, 82, 4)
    pen.box((70, 74, 84), 6, 29, 68, 75, 3)
    pen.box((252, 216, 120), 12, 36, 62, 68, 3)
    pen.oval((206, 150, 84), 37, 60, 16, 6)
    pen.box((40, 60, 50), 75, 30, 95, 40, 1)
    for y in (47, 56, 65):
        for x in (76, 83, 90):
            pen.box(STEEL, x, y, x + 5, y + 5)


@drawing("oven", "gray white black", (0.32, 0.42))
def oven(pen: Pen) -> None:
    pen.box(pen.main, 8, 8, 92, 96, 3)
    pen.box(pen.dark, 8, 8, 92, 30, 3)
    for x in (22, 38, 62, 78):
        pen.oval(WHITE, x, 19, 5)
        pen.line((200, 50, 48), 2, (x, 19), (x, 15))
    pen.box(INK, 18, 46, 82, 86, 3)
    pen.box((232, 128, 50), 24, 58, 76, 82, 2)
    pen.line(INK, 2, (24, 68), (76, 68))
    pen.line((226, 230, 236), 5, (22, 38), (78, 38))
    for x in (24, 66):
        pen.box(INK, x, 2, x + 16, 8, 2)


@drawing("refrigerator", "white gray", (0.37, 0.48))
def refrigerator(pen: Pen) -> None:
    pen.box(pen.dark, 22, 2, 78, 98, 4)
    pen.box(pen.main, 24, 4, 76, 34, 3)
    pen.box(pen.main, 24, 37, 76, 95, 3)
    pen.line((110, 116, 126), 4, (31, 18), (31, 29))
    pen.line((110, 116, 126), 4, (31, 44), (31, 64))
    pen.box((214, 45, 48), 56, 12, 63, 19, 1)
    pen.box((250, 206, 60), 62, 46, 70, 56, 1)
    pen.box((80, 150, 220), 54, 58, 62, 66, 1)


@drawing("clock", "red blue black", (0.23, 0.32))
def clock(pen: Pen) -> None:
    pen.oval(pen.main, 50, 50, 47)
    pen.oval(WHITE, 50, 50, 38)
    for x, y in ((50, 17), (83, 50), (50, 83), (17, 50)):
        pen.oval(INK, x, y, 3.4)
    pen.line(INK, 5.5, (50, 50), (50, 27))
    pen.line(INK, 4.5, (50, 50), (60 + 14 * pen.pose, 66 - 20 * pen.pose))
    pen.oval((214, 45, 48), 50, 50, 4)


@drawing("book", "red blue green", (0.23, 0.32), tilts=True)
def book(pen: Pen) -> None:
    pen.poly(pen.dark, (0, 26), (48, 32), (52, 32), (100, 26), (100, 84), (52, 90), (48, 90), (0, 84))
    pen.poly(WHITE, (5, 20), (50, 30), (50, 85), (5, 77))
    pen.poly((236, 232, 220), (95, 20), (50, 30), (50, 85), (95, 77))
    for y in (34, 44, 54, 64):
        pen.line((130, 130, 140), 2.6, (12, y - 2), (43, y + 5))
        pen.line((130, 130, 140), 2.6, (57, y + 5), (88, y - 2))
    pen.line(pen.main, 4, (50, 30), (50, 88))
    pen.poly(pen.main, (68, 24), (75, 22), (75, 44), (71, 40), (68, 45))


@drawing("toothbrush", "blue green pink", SMALL, tilts=True)
def toothbrush(pen: Pen) -> None:
    pen.line(pen.main, 10, (4, 60), (50, 60), (94, 56))
    pen.line(pen.light, 4, (10, 60), (40, 60))
    for x in (66, 73, 80, 87):
        pen.line(WHITE, 6, (x, 53), (x, 36))
        pen.line((150, 210, 240), 6, (x, 40), (x, 35))


@drawing("scissors", "red blue", SMALL, tilts=True)
def scissors(pen: Pen) -> None:
    spread = 6 + 6 * pen.pose
    pen.poly(STEEL, (44, 58), (54, 54), (50 + spread, 2), (48 + spread, 2))
    pen.poly((206, 212, 220), (46, 54), (56, 58), (52 - spread, 2), (50 - spread, 2))
    pen.line(pen.main, 8, (48, 60), (36, 70))
    pen.line(pen.main, 8, (52, 60), (64, 70))
    pen.ring(pen.main, 8, 30, 82, 12)
    pen.ring(pen.main, 8, 70, 82, 12)
    pen.oval(INK, 50, 56, 3)
