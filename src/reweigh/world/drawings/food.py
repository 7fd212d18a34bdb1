"""Drawings of food and of what it is served in."""

from __future__ import annotations

from reweigh.world.drawings.pen import INK, LEAF, MEDIUM, SMALL, STEEL, WHITE, Pen, drawing, mix


@drawing("apple", "red green yellow", SMALL)
def apple(pen: Pen) -> None:
    pen.blob(
        pen.main,
        (50, 26),
        (72, 18),
        (92, 36),
        (86, 72),
        (64, 96),
        (50, 91),
        (36, 96),
        (14, 72),
        (8, 36),
        (28, 18),
    )
    pen.oval(pen.light, 28, 42, 7, 12)
    pen.line((96, 62, 36), 5, (50, 28), (54, 6))
    pen.blob(LEAF, (55, 14), (72, 2), (84, 6), (70, 18))


@drawing("orange", "orange", SMALL)
def orange(pen: Pen) -> None:
    pen.oval(pen.main, 50, 54, 42)
    pen.oval(pen.light, 34, 38, 10, 8)
    for x, y in ((56, 40), (70, 56), (44, 64), (60, 76), (30, 60), (76, 40), (44, 82)):
        pen.oval(pen.dark, x, y, 2.4)
    pen.poly(LEAF, (50, 16), (60, 2), (82, 8), (66, 18))
    pen.oval((74, 120, 56), 50, 15, 5, 3)


@drawing("banana", "yellow", (0.22, 0.32), tilts=True)
def banana(pen: Pen) -> None:
    bend = 8 * pen.pose
    pen.blob(
        pen.main,
        (6, 34),
        (16, 34),
        (34, 56 + bend),
        (62, 62 + bend),
        (88, 40),
        (97, 42),
        (88, 72),
        (56, 90),
        (22, 74),
    )
    pen.line(pen.dark, 3, (12, 42), (32, 68 + bend / 2), (60, 74 + bend / 2), (92, 50))
    pen.line((110, 82, 36), 8, (8, 34), (6, 26))
    pen.oval((90, 70, 34), 94, 42, 4)


@drawing("sandwich", "brown", (0.24, 0.33))
def sandwich(pen: Pen) -> None:
    crust, crumb = (186, 124, 62), (240, 212, 162)
    pen.poly(crust, (4, 84), (96, 84), (96, 92), (4, 92))
    pen.poly(crumb, (4, 76), (96, 76), (96, 86), (4, 86))
    pen.line((240, 200, 70), 6, (6, 72), (94, 72))
    pen.line((214, 76, 70), 7, (8, 66), (92, 66))
    pen.line((96, 178, 78), 7, (4, 60), (18, 63), (32, 58), (48, 63), (64, 58), (80, 63), (96, 60))
    pen.poly(crumb, (4, 56), (96, 56), (52, 16))
    pen.line(crust, 6, (4, 56), (52, 16), (96, 56))
    pen.line(crust, 5, (4, 56), (96, 56))


@drawing("broccoli", "green", SMALL)
def broccoli(pen: Pen) -> None:
    stem = (150, 190, 96)
    pen.poly(stem, (40, 50), (60, 50), (58, 96), (42, 96))
    pen.line(stem, 9, (48, 72), (26, 52))
    pen.line(stem, 9, (52, 72), (74, 52))
    for x, y, r in ((22, 44, 17), (78, 44, 17), (36, 26, 18), (64, 26, 18), (50, 42, 20)):
        pen.oval(pen.dark, x, y, r)
        pen.oval(pen.main, x - 2, y - 3, r * 0.75)
    for x, y in ((32, 20), (50, 34), (66, 22), (20, 40), (76, 40), (46, 14)):
        pen.oval(pen.light, x, y, 4)


@drawing("carrot", "orange", SMALL, tilts=True)
def carrot(pen: Pen) -> None:
    for dx in (-14, 0, 14):
        pen.line(LEAF, 6, (50, 32), (50 + dx, 6 if dx else 2))
    pen.blob(pen.main, (34, 34), (50, 28), (66, 34), (60, 66), (50, 98), (40, 66))
    for y, w in ((44, 10), (56, 8), (68, 6)):
        pen.line(pen.dark, 2.6, (50 - w, y), (50, y + 1))


@drawing("hot dog", "red", (0.24, 0.33), tilts=True)
def hot_dog(pen: Pen) -> None:
    bun = (222, 160, 88)
    pen.box(bun, 8, 30, 92, 56, 13)
    pen.box((184, 76, 52), 0, 40, 100, 62, 11)
    pen.box(mix(bun, INK, 0.12), 8, 54, 92, 76, 11)
    pen.line((250, 210, 50), 5, (8, 52), (20, 44), (32, 54), (44, 44), (56, 54), (68, 44), (80, 54), (92, 46))


@drawing("pizza", "yellow", (0.25, 0.34))
def pizza(pen: Pen) -> None:
    pen.oval((196, 132, 66), 50, 50, 47)
    pen.oval((220, 90, 52), 50, 50, 40)
    pen.oval(pen.main, 50, 50, 37)
    for x, y in ((36, 32), (64, 30), (72, 56), (50, 54), (30, 62), (54, 76)):
        pen.oval((196, 52, 46), x, y, 8)
    for x, y in ((50, 40), (40, 76), (66, 70), (24, 46)):
        pen.oval(LEAF, x, y, 3.6)
    turn = 8 * pen.pose
    pen.line((196, 132, 66), 2.4, (50, 50), (92, 40 + turn))
    pen.line((196, 132, 66), 2.4, (50, 50), (14 + turn, 82))
    pen.line((196, 132, 66), 2.4, (50, 50), (30, 10))


@drawing("donut", "pink brown white", SMALL)
def donut(pen: Pen) -> None:
    pen.ring((206, 150, 84), 34, 50, 52, 30)
    pen.ring(pen.main, 25, 50, 49, 30)
    for i, (x, y) in enumerate(((26, 40), (40, 22), (62, 22), (78, 42), (74, 64), (50, 80), (26, 64))):
        pen.line(((70, 150, 220), (250, 220, 80), (110, 190, 100))[i % 3], 4, (x, y), (x + 5, y + 4))


@drawing("cake", "pink white brown", (0.25, 0.35))
def cake(pen: Pen) -> None:
    pen.oval(STEEL, 50, 90, 48, 7)
    pen.box(pen.main, 12, 52, 88, 90, 4)
    pen.box(pen.light, 12, 64, 88, 72)
    pen.box(pen.dark, 24, 32, 76, 54, 4)
    pen.line(WHITE, 6, (14, 54), (26, 60), (38, 54), (50, 60), (62, 54), (74, 60), (86, 54))
    pen.line(WHITE, 5, (26, 34), (38, 38), (50, 34), (62, 38), (74, 34))
    for x in (36, 50, 64):
        pen.line((96, 160, 226), 4, (x, 16), (x, 32))
        pen.oval((252, 190, 50), x, 9, 3.4, 5)


@drawing("bottle", "green blue brown", (0.27, 0.36))
def bottle(pen: Pen) -> None:
    pen.blob(
        pen.main, (43, 10), (57, 10), (58, 30), (70, 44), (70, 92), (50, 98), (30, 92), (30, 44), (42, 30)
    )
    pen.box((180, 60, 50), 42, 2, 58, 12, 2)
    pen.box(WHITE, 30, 54, 70, 78)
    pen.line(pen.main, 4, (38, 66), (62, 66))
    pen.line(pen.light, 4, (38, 44), (37, 52))


@drawing("wine glass", "red yellow", (0.25, 0.34))
def wine_glass(pen: Pen) -> None:
    glass = (214, 232, 240)
    pen.box(glass, 47, 56, 53, 92)
    pen.oval(glass, 50, 93, 22, 5)
    pen.blob(glass, (26, 4), (74, 4), (78, 34), (62, 56), (50, 60), (38, 56), (22, 34))
    pen.blob(pen.main, (25, 26), (75, 26), (73, 38), (60, 52), (50, 55), (40, 52), (27, 38))
    pen.line(WHITE, 3, (32, 12), (31, 30))


@drawing("cup", "white blue red", SMALL)
def cup(pen: Pen) -> None:
    pen.arc(pen.dark, 8, 76, 52, 17, 17, -90, 90)
    pen.poly(pen.main, (14, 26), (78, 26), (70, 88), (22, 88))
    pen.oval(pen.light, 46, 26, 32, 8)
    pen.oval((92, 56, 34), 46, 27, 26, 5.5)
    pen.line(pen.light, 5, (24, 44), (28, 76))
    for x in (36, 54):
        pen.line((226, 228, 232), 3, (x, 14), (x + 4, 8), (x, 1))


@drawing("fork", "gray", (0.24, 0.33), tilts=True)
def fork(pen: Pen) -> None:
    for x in (35, 45, 55, 65):
        pen.line(pen.light, 5, (x, 4), (x, 32))
    pen.box(pen.light, 32, 26, 68, 42, 8)
    pen.poly(pen.light, (42, 40), (58, 40), (54, 56), (46, 56))
    pen.line(pen.main, 9, (50, 54), (50, 95))


@drawing("knife", "black brown", (0.24, 0.33), tilts=True)
def knife(pen: Pen) -> None:
    pen.poly((214, 220, 228), (40, 60), (40, 18), (48, 2), (62, 16), (62, 60))
    pen.line(WHITE, 3, (45, 20), (45, 56))
    pen.box(STEEL, 36, 58, 66, 65, 1)
    pen.box(pen.main, 40, 64, 62, 98, 6)
    for y in (74, 88):
        pen.oval(STEEL, 51, y, 2.6)


@drawing("spoon", "gray", (0.24, 0.33), tilts=True)
def spoon(pen: Pen) -> None:
    pen.line(pen.main, 8, (50, 40), (50, 95))
    pen.oval(pen.main, 50, 24, 19, 23)
    pen.oval(pen.light, 50, 23, 13, 17)


@drawing("bowl", "blue white orange", (0.24, 0.33))
def bowl(pen: Pen) -> None:
    pen.pie(pen.main, 50, 42, 46, 46, 0, 180)
    pen.box(pen.dark, 34, 84, 66, 92, 2)
    pen.oval(pen.light, 50, 42, 46, 11)
    pen.oval((246, 226, 190), 50, 43, 38, 7.5)
    pen.line(pen.dark, 4, (12, 60), (26, 68), (50, 71), (74, 68), (88, 60))


@drawing("vase", "purple blue white", MEDIUM)
def vase(pen: Pen) -> None:
    for x, y, fill in ((30, 12, (240, 110, 130)), (52, 4, (250, 200, 70)), (72, 14, (236, 120, 190))):
        pen.line(LEAF, 3.4, (50, 50), (x, y))
        for dx, dy in ((-6, 0), (6, 0), (0, -6), (0, 6)):
            pen.oval(fill, x + dx, y + dy, 5.5)
        pen.oval((255, 244, 190), x, y, 3.6)
    pen.blob(pen.main, (38, 42), (62, 42), (60, 52), (76, 70), (66, 96), (34, 96), (24, 70), (40, 52))
    pen.line(pen.light, 4, (34, 68), (50, 74), (66, 68))
    pen.box(pen.dark, 36, 40, 64, 46, 2)
