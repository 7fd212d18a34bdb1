"""Drawings of what people carry and of what they play with."""

from __future__ import annotations

from reweigh.world.drawings.pen import GOLD, INK, MEDIUM, SMALL, STEEL, WHITE, Pen, drawing


@drawing("backpack", "green red purple", MEDIUM)
def backpack(pen: Pen) -> None:
    pen.arc(pen.dark, 6, 50, 14, 11, 11, 180, 360)
    for x in (14, 86):
        pen.box(pen.dark, x - 8, 44, x + 8, 80, 6)
    pen.blob(pen.main, (24, 22), (50, 9), (76, 22), (82, 60), (78, 96), (50, 98), (22, 96), (18, 60))
    pen.box(pen.light, 28, 56, 72, 88, 5)
    pen.line(pen.dark, 3, (30, 66), (70, 66))
    pen.line(GOLD, 4, (50, 66), (50, 73))
    pen.arc(pen.dark, 3, 50, 46, 26, 22, 195, 345)


@drawing("umbrella", "red blue purple yellow", (0.3, 0.4))
def umbrella(pen: Pen) -> None:
    pen.line(INK, 4, (50, 4), (50, 86))
    pen.arc(INK, 4, 58, 86, 8, 8, 0, 180)
    pen.pie(pen.main, 50, 50, 48, 42, 180, 360)
    pen.poly(pen.light, (50, 8), (34, 50), (50, 50), (66, 50))
    pen.poly(pen.dark, (50, 8), (2, 50), (18, 50))
    pen.poly(pen.dark, (50, 8), (98, 50), (82, 50))
    for x in (10, 26, 42, 58, 74, 90):
        pen.oval(pen.light, x, 50, 8, 3.4)


@drawing("handbag", "brown red pink", (0.25, 0.34))
def handbag(pen: Pen) -> None:
    pen.arc(pen.dark, 6, 50, 44, 26, 36, 180, 360)
    pen.blob(pen.main, (16, 42), (50, 39), (84, 42), (96, 88), (50, 96), (4, 88))
    pen.poly(pen.dark, (16, 42), (84, 42), (78, 58), (50, 64), (22, 58))
    pen.box(GOLD, 43, 56, 57, 70, 3)


@drawing("suitcase", "blue brown orange", MEDIUM)
def suitcase(pen: Pen) -> None:
    pen.line(STEEL, 4, (38, 30), (38, 4), (62, 4), (62, 30))
    for x in (24, 76):
        pen.oval(INK, x, 94, 5)
    pen.box(pen.main, 14, 26, 86, 92, 8)
    for x in (30, 50, 70):
        pen.line(pen.dark, 4, (x, 32), (x, 86))
    pen.box(INK, 40, 20, 60, 27, 2)
    for x, y in ((14, 26), (78, 26), (14, 84), (78, 84)):
        pen.box(pen.dark, x, y, x + 8, y + 8, 2)


@drawing("skis", "red blue green", (0.3, 0.4))
def skis(pen: Pen) -> None:
    lean = 6 * pen.pose
    for x in (34, 56):
        pen.line(pen.main, 9, (x, 96), (x + lean, 14), (x + lean - 5, 3))
        pen.box(INK, x + lean / 2 - 6, 54, x + lean / 2 + 6, 70, 2)
        pen.line(pen.light, 3, (x + 1, 44), (x + lean, 18))
    for x in (16, 82):
        pen.line(STEEL, 3.4, (x, 96), (x + lean / 2, 22))
        pen.line(INK, 6, (x + lean / 2, 32), (x + lean / 2, 22))
        pen.line(INK, 3, (x - 6, 88), (x + 6, 88))


@drawing("sports ball", "white orange", SMALL)
def sports_ball(pen: Pen) -> None:
    pen.oval(pen.main, 50, 50, 44)
    if pen.main == (240, 138, 32):
        for points in (((50, 6), (50, 94)), ((6, 50), (94, 50))):
            pen.line(INK, 4, *points)
        pen.arc(INK, 4, 8, 50, 26, 34, -62, 62)
        pen.arc(INK, 4, 92, 50, 26, 34, 118, 242)
        return
    pen.poly(INK, (50, 34), (66, 46), (60, 64), (40, 64), (34, 46))
    for x, y, u, v in (
        (50, 34, 50, 14),
        (66, 46, 86, 38),
        (60, 64, 72, 84),
        (40, 64, 28, 84),
        (34, 46, 14, 38),
    ):
        pen.line(INK, 3.4, (x, y), (u, v))
        pen.oval(INK, u, v, 8)


@drawing("kite", "red yellow purple", (0.28, 0.38))
def kite(pen: Pen) -> None:
    pen.poly(pen.main, (56, 2), (86, 34), (48, 70), (24, 26))
    pen.poly(pen.light, (56, 2), (86, 34), (52, 31))
    pen.poly(pen.dark, (24, 26), (52, 31), (48, 70))
    pen.line(WHITE, 2, (56, 2), (48, 70))
    pen.line(WHITE, 2, (24, 26), (86, 34))
    pen.line((90, 90, 100), 2.4, (48, 70), (36, 80), (44, 90), (28, 98))
    for x, y in ((36, 80), (44, 90)):
        pen.poly((70, 150, 220), (x, y), (x - 8, y - 5), (x - 8, y + 5))
        pen.poly((250, 206, 60), (x, y), (x + 8, y - 5), (x + 8, y + 5))


@drawing("baseball bat", "brown", (0.3, 0.4))
def baseball_bat(pen: Pen) -> None:
    pen.poly((206, 152, 90), (16, 88), (12, 84), (66, 18), (80, 30))
    pen.oval((206, 152, 90), 76, 21, 15, 14)
    pen.line((232, 190, 130), 4, (50, 48), (74, 20))
    pen.line(INK, 8, (12, 88), (26, 72))
    pen.oval(INK, 10, 91, 6)
    pen.oval(WHITE, 78, 78, 15)
    pen.arc((214, 45, 48), 2.6, 68, 78, 8, 12, -50, 50)
    pen.arc((214, 45, 48), 2.6, 88, 78, 8, 12, 130, 230)


@drawing("skateboard", "purple green red", (0.25, 0.34))
def skateboard(pen: Pen) -> None:
    for x in (26, 74):
        pen.line(STEEL, 6, (x, 56), (x, 66))
        pen.oval((250, 206, 60), x - 7, 70, 8)
        pen.oval((250, 206, 60), x + 7, 70, 8)
        pen.oval(INK, x - 7, 70, 3)
        pen.oval(INK, x + 7, 70, 3)
    pen.line(pen.main, 9, (2, 38), (16, 52), (84, 52), (98, 38))
    pen.line(INK, 3.4, (2, 34), (16, 48), (84, 48), (98, 34))


@drawing("surfboard", "yellow blue pink", (0.34, 0.44))
def surfboard(pen: Pen) -> None:
    pen.blob(pen.main, (50, 1), (65, 26), (67, 60), (58, 98), (42, 98), (33, 60), (35, 26))
    pen.line(WHITE, 4, (50, 8), (50, 94))
    pen.line(pen.dark, 6, (35, 62), (50, 70), (66, 62))
    pen.line(pen.dark, 6, (36, 36), (50, 44), (65, 36))


@drawing("tennis racket", "red blue green", (0.28, 0.38), tilts=True)
def tennis_racket(pen: Pen) -> None:
    pen.oval((236, 238, 226), 50, 32, 25, 28)
    for k in (-14, -5, 4, 13):
        pen.line((150, 156, 150), 2, (52 + k, 6), (52 + k, 58))
        pen.line((150, 156, 150), 2, (28, 32 + k), (72, 32 + k))
    pen.arc(pen.main, 6, 50, 32, 26, 29, 0, 360)
    pen.line(pen.main, 5, (40, 58), (50, 70), (60, 58))
    pen.line(INK, 9, (50, 72), (50, 96))
