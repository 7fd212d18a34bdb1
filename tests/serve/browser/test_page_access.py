"""The page on a phone, in the dark, by keyboard alone, and under axe."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
WIDE = {"viewport": {"width": 1280, "height": 900}}


@pytest.mark.parametrize(
    "context",
    [
        {**WIDE, "color_scheme": "light"},
        {**WIDE, "color_scheme": "dark"},
        {**PHONE, "color_scheme": "light"},
        {**PHONE, "color_scheme": "dark"},
    ],
    ids=["wide", "wide-dark", "phone", "phone-dark"],
)
def test_axe_finds_nothing_serious_and_nothing_hangs_over_the_side(visit, context):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    seen = visit("#scene=24", reduced_motion="reduce", **context).written()
    touch = context.get("has_touch", False)
    word = seen.page.locator("#right .place:has(del) .word").nth(1)
    (word.tap if touch else word.click)()
    seen.page.wait_for_selector("canvas.painted")
    found = axe.run(seen.page).response["violations"]
    serious = [
        (one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")
    ]
    assert not serious
    wide = seen.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1]
    table = seen.page.evaluate(
        "(({ scrollWidth, clientWidth }) => [scrollWidth, clientWidth])(document.querySelector('.scroll'))"
    )
    assert table[0] <= table[1]


def test_dark_is_dark(visit):
    shade = "getComputedStyle(document.body).backgroundColor"
    light, dark = (
        visit("#scene=24", color_scheme=kind).written().page.evaluate(shade) for kind in ("light", "dark")
    )
    assert sum(map(int, light[4:-1].split(","))) > 600
    assert sum(map(int, dark[4:-1].split(","))) < 150


def test_a_tap_on_a_phone_opens_a_sheet_with_the_painted_picture(visit):
    seen = visit("#scene=24", **PHONE).written()
    seen.page.locator("#right .word", has_text="dog").tap()
    seen.page.wait_for_selector("#maps canvas")
    sheet = seen.page.locator("#step").bounding_box()
    assert sheet["y"] > 300
    assert sheet["y"] + sheet["height"] <= 845
    assert sheet["width"] == 390
    seen.page.locator("#step-close").tap()
    assert seen.page.locator("#step").is_hidden()


def test_everything_can_be_reached_by_keyboard(visit):
    seen = visit("#scene=24").written()
    page = seen.page
    here = """(document.activeElement.closest("#left, #right") ?? document.activeElement).id"""
    order = []
    for _ in range(20):
        page.keyboard.press("Tab")
        order.append(page.evaluate(here))
        if order[-1] == "right":
            break
    assert [one for one in order if one] == [
        "choose",
        "another",
        "wrong",
        "question",
        "go",
        "beside",
        "beta",
        "layer",
        "left",
        "right",
    ]
    page.keyboard.press("ArrowRight")
    assert page.locator("#step").is_hidden()
    page.keyboard.press("Enter")
    page.wait_for_selector("canvas.painted")
    assert seen.text("#step-title") == f"Why “{seen.words('right')[1]}”?"
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    page.keyboard.press("ArrowRight")
    assert seen.text("#step-title") == f"Why “{seen.words('right')[2]}”?", "an open panel follows the arrows"
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.textContent") == "."
    page.keyboard.press("Escape")
    assert page.locator("#step").is_hidden()
    page.keyboard.press("Home")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(here) == "left"


def test_states_are_said_to_screen_readers(visit):
    seen = visit("#scene=24").written()
    assert "words differ" in seen.text("#status")
    assert seen.page.locator("#status").get_attribute("role") == "status"
    short = seen.page.locator("#left .word.unsupported").first
    assert short.evaluate("node => node.textContent").endswith(
        ("(lacks support)", "(not in the scene)", "(differs)")
    )
    assert "lacks support" in short.evaluate("node => node.textContent")
    assert "Base (greedy)" in seen.page.locator("#left").get_attribute("aria-label")
