"""Why a word was suppressed, and what a known scene does not contain: on a laptop and on a phone."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.slow

LAPTOP = {"viewport": {"width": 1366, "height": 768}}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.mark.parametrize("context", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_one_click_on_a_struck_out_word_shows_why_in_view(visit, context):
    seen = visit("#scene=129", **context).written().completed()
    held = seen.page.locator("#right .held", has_text="traffic").first
    (held.tap if "has_touch" in context else held.click)()
    seen.page.wait_for_selector("#maps .map:nth-child(2) canvas.painted")
    assert seen.text("#step-title") == "Why “fire”, not “traffic”?"
    said = seen.text("#step-say")
    assert re.fullmatch(
        r"“traffic” had the highest score, but the picture supports it only \d+% as much as usual, "
        r"so it lost \d\.\d\d points and “fire” was written\.",
        said,
    )
    suppressed, written = seen.page.locator("#maps figcaption").all_inner_texts()
    assert "traffic suppressed" in suppressed
    assert "no traffic light in the scene" in suppressed
    assert "fire written" in written
    assert "fire hydrant in the scene" in written
    assert seen.inside("#step-title", "#step-say", "#maps canvas", "#maps figcaption")
    left, right = (one.bounding_box() for one in seen.page.locator("#maps canvas").all())
    assert left["y"] == right["y"], "the maps are side by side"
    assert left["x"] + left["width"] <= right["x"]
    assert held.get_attribute("aria-pressed") == "true"
    assert not seen.errors


def test_the_two_maps_are_those_of_the_two_words(visit):
    seen = visit("#scene=129").written()
    brightness = """canvas => {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      let most = 0;
      for (let at = 0; at < data.length; at += 4) most = Math.max(most, data[at] + data[at + 1] - data[at + 2]);
      return most;
    }"""
    seen.page.locator("#right .held", has_text="traffic").first.click()
    seen.page.wait_for_selector("#maps .map:nth-child(2) canvas.painted")
    traffic, fire = seen.page.eval_on_selector_all("#maps canvas", f"all => all.map({brightness})")
    assert fire > traffic + 50, "the hydrant lights up, nothing does for the traffic light"


def test_pieces_are_joined_to_words(visit):
    seen = visit("#scene=129").written().completed()
    for held in seen.page.locator("#right .held del").all_inner_texts():
        assert not held.endswith("…")
    seen.page.locator("#right .held", has_text="Tall").click()
    seen.page.wait_for_selector("#maps canvas.painted")
    table = seen.page.locator("#step-body table .candidate")
    pieces = [one.get_attribute("title") for one in table.all()]
    words = table.all_inner_texts()
    assert ("Tall", "token “ T”") in zip(words, pieces, strict=True)
    assert not [word for word in words if word.endswith("…")]


def test_what_a_known_scene_does_not_contain_is_marked_and_counted(visit):
    seen = visit("#scene=129").written()
    shown = "nodes => nodes.map(node => node.firstChild.textContent)"
    absent = seen.page.eval_on_selector_all("#left .word.hallucinated", shown)
    assert absent == ["traffic", "light", "person"]
    assert "fire" in seen.page.eval_on_selector_all("#right .word.grounded", shown)
    assert seen.page.locator("#right .word.hallucinated").count() == 0
    assert "Not in the scene: 2 on the left, 0 on the right." in seen.text("#status")
    assert "Lacks support: 1 on the left, 0 on the right." in seen.text("#status")
    assert seen.page.locator("#left .word.unsupported").count() == 1
    look = "node => { const s = getComputedStyle(node); return [s.backgroundColor, s.textDecorationLine]; }"
    truth = seen.page.locator("#left .word.hallucinated").first.evaluate(look)
    judgment = seen.page.locator("#legend .unsupported").evaluate(look)
    assert truth[0] != judgment[0] != truth[1]
    assert judgment[1] == "underline"
    image = seen.page.locator("#left .word", has_text="image").first
    assert "plain" in image.get_attribute("class").split()


def test_a_picture_of_unknown_contents_has_no_marks_of_truth(visit):
    from live import picture

    seen = visit("#scene=129").written()
    seen.drop(("own.png", picture(129)))
    assert seen.page.locator(".word.hallucinated, .word.grounded").count() == 0
    assert "Not in the scene" not in seen.text("#status")
    assert seen.page.locator("#legend .known").is_hidden()


def test_a_page_for_class_works_from_a_file(visit, tmp_path):
    seen = visit("#scene=129").written().completed()
    count = seen.page.locator("#right .held").count()
    with seen.page.expect_download() as kept:
        seen.page.click("#save-lesson")
    path = tmp_path / "lesson.html"
    kept.value.save_as(path)
    lesson = seen.page.context.new_page()
    requests = []
    lesson.on("request", lambda request: requests.append(request.url))
    lesson.goto(path.as_uri())
    assert [url for url in requests if not url.startswith("data:")] == [path.as_uri()]
    assert lesson.locator("section h2").count() == count
    assert lesson.locator("section .map img").count() == 2 * count
    assert lesson.locator("script, button").count() == 0
    lesson.locator("a.held", has_text="traffic").first.click()
    assert lesson.locator("section:target h2").inner_text() == "Why “fire”, not “traffic”?"
    assert lesson.locator(".hallucinated", has_text="traffic").count() >= 1
    assert not seen.errors
