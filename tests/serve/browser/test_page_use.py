"""What a person does on the page, in a real browser on the embedded model."""

from __future__ import annotations

import json

import httpx
import pytest
from live import picture, user

pytestmark = pytest.mark.slow

COUNTS = """() => {
  window.counts = { left: [], right: [] };
  for (const side of ["left", "right"])
    new MutationObserver(() => window.counts[side].push(document.querySelectorAll(`#${side} .word`).length))
      .observe(document.getElementById(side), { childList: true });
}"""


def answers_of(house, number, **knobs):
    body = {"model": "reweigh-world", "messages": [user(picture(number))], **knobs}
    told = httpx.post(f"{house.url}/v1/chat/completions", json=body, timeout=60).json()
    return [choice["message"]["content"] for choice in told["choices"]]


def test_a_dropped_picture_is_described_by_both_sides_as_they_stream(visit, house):
    seen = visit().written()
    seen.page.evaluate(COUNTS)
    seen.drop(("beach.png", picture(8)))
    beta = httpx.get(f"{house.url}/inspect/facts", timeout=60).json()["reweigh"]["beta"]
    base, edited = answers_of(house, 8, n=2, reweigh={"beta": [0, beta]})
    assert "".join(seen.words("left")) == base.replace(" ", "")
    assert "".join(seen.words("right")) == edited.replace(" ", "")
    assert base != edited
    for side in ("left", "right"):
        grown = sorted(set(seen.page.evaluate(f"window.counts.{side}")) - {0})
        assert len(grown) > 10, "the words came all at once"
        assert seen.page.locator(f"#{side} .word.changed").count() > 0
    assert seen.page.locator("#left .word.unsupported .bar").count() > 0
    assert seen.page.locator("#right .held del.suppressed").count() > 0
    assert not seen.errors


def test_a_word_opens_its_step(visit):
    seen = visit("#scene=24").written()
    changed = seen.page.locator("#right .place:has(del) .word").nth(1)
    changed.click()
    assert "had the highest score, but the picture supports it only" in seen.text("#step-say")
    table = seen.page.locator("#step-body table")
    assert table.locator("tbody tr").count() >= 2
    assert table.locator("tr.lost del.suppressed").count() == 1
    assert table.locator("tr.won .candidate").inner_text() == changed.evaluate(
        "node => node.firstChild.textContent"
    )
    before, after = (float(table.locator("tr.lost td.number").nth(place).inner_text()) for place in (0, 1))
    assert before > after
    assert table.locator("tr.lost svg .shift").count() == 1
    seen.page.locator("#left .word.fine").first.click()
    assert "nothing was edited" in seen.text("#step-say")
    assert seen.page.locator("#step-body tr.lost").count() == 0


def test_clicking_a_word_paints_its_evidence_layer_by_layer(visit):
    seen = visit("#scene=24").written()
    dog = seen.page.locator("#right .word", has_text="dog")
    dog.click()
    seen.page.wait_for_selector("canvas.painted")
    assert "dog" in seen.text("#maps")
    assert seen.page.locator("#heat-layers label").all_inner_texts() == ["1", "2", "3"]
    assert dog.get_attribute("aria-pressed") == "true"
    painted = "canvas => canvas.toDataURL()"
    two = seen.page.eval_on_selector("canvas.painted", painted)
    seen.page.locator("#heat-layers label").first.click()
    assert seen.page.eval_on_selector("canvas.painted", painted) != two
    dog.click()
    assert seen.page.locator("#step").is_hidden()
    assert dog.get_attribute("aria-pressed") == "false"


def test_sliders_write_anew_from_kept_evidence(visit, house, capsys):
    seen = visit("#scene=24").written()
    before = seen.words("right")
    asked = [url for url in seen.requests if url.endswith("/inspect/measure")]
    seen.page.locator("#right .word").first.click()
    seen.page.wait_for_selector("canvas.painted")
    seen.ask_again(lambda: seen.page.locator("#beta").fill("0"))
    waited = [int(seen.page.evaluate("document.documentElement.dataset.firstWord"))]
    assert seen.words("right") == seen.words("left") != before
    assert seen.page.locator(".word.changed").count() == 0
    seen.ask_again(lambda: seen.page.locator("#layer").press("ArrowLeft"))
    waited.append(int(seen.page.evaluate("document.documentElement.dataset.firstWord")))
    assert seen.text("#layer-shown") == "1 of 5"
    assert seen.page.locator("#heat-layers input:checked").get_attribute("value") == "1"
    assert "“The”" in seen.text("#step-title")
    seen.ask_again(lambda: seen.page.locator("#beta").fill("2.1"))
    waited.append(int(seen.page.evaluate("document.documentElement.dataset.firstWord")))
    expected = answers_of(house, 24, reweigh={"beta": 2.1, "layer": 1})[0]
    assert "".join(seen.words("right")) == expected.replace(" ", "")
    assert [url for url in seen.requests if url.endswith("/inspect/measure")] == asked
    with capsys.disabled():
        print(f"\nfirst word after a slider moved: {waited} ms")  # noqa: T201


def test_a_rival_stands_beside_reweigh(visit, house):
    seen = visit("#scene=24").written()
    ours = seen.words("right")
    seen.ask_again(lambda: seen.page.select_option("#beside", "vcd"))
    assert seen.text("#left-title") == "VCD"
    expected = answers_of(house, 24, reweigh={"decoder": "vcd"})[0]
    assert "".join(seen.words("left")) == expected.replace(" ", "")
    assert seen.words("right") == ours
    seen.page.locator("#left .word").nth(3).click()
    assert "not traced" in seen.text("#step-body")


def test_a_text_is_checked(visit):
    seen = visit("#scene=24").written()
    seen.page.fill("#check-text", "A dog and a boat near a book, waves.")
    seen.page.click("#check-go")
    seen.page.wait_for_selector("#checked .word")
    assert "".join(seen.words("checked")) == "Adogandaboatnearabook,waves."
    assert "boat" in seen.text("#check-status")
    assert "Not judged: waves" in seen.text("#check-status")
    short = seen.page.eval_on_selector_all(
        "#checked .word.unsupported", "nodes => nodes.map(node => node.firstChild.textContent)"
    )
    assert "boat" in short
    assert not {"dog", "book"} & set(short)
    seen.ask_again(lambda: seen.page.locator("#layer").press("ArrowRight"))
    seen.page.locator("#checked .word", has_text="boat").click()
    assert "much less than other pictures do" in seen.text("#step-say")
    seen.page.wait_for_selector("canvas.painted")


def test_a_link_brings_back_what_was_seen_and_the_trace_is_a_file(visit, house):
    seen = visit("#scene=24&beta=1.5&layer=3&question=What+is+here%3F").written()
    assert seen.page.input_value("#question") == "What is here?"
    assert seen.text("#beta-shown") == "1.5"
    assert seen.text("#layer-shown") == "3 of 5"
    seen.page.locator("#right .word").nth(4).click()
    seen.page.wait_for_selector("canvas.painted")
    seen.page.click("#share")
    seen.page.wait_for_selector("#keep-status:not([hidden])")
    address = seen.page.evaluate("location.hash")
    again = visit(address)
    again.page.wait_for_selector("canvas.painted")
    assert again.words("right") == seen.words("right")
    assert again.text("#step-title") == seen.text("#step-title")
    with again.page.expect_download() as kept:
        again.page.click("#save-trace")
    told = json.loads(kept.value.path().read_text())
    assert [one["name"] for one in told["answers"]] == ["Base (greedy)", "ReWEIGH"]
    assert told["answers"][1]["beta"] == 1.5
    assert told["answers"][1]["layer"] == 3
    assert told["answers"][1]["tokens"][0]["candidates"]


def test_several_pictures_are_asked_about_and_painted(visit):
    seen = visit().written()
    seen.drop(("one.png", picture(8)), ("two.png", picture(9)))
    assert seen.page.locator("figcaption").all_inner_texts() == ["one.png", "two.png"]
    seen.page.locator("#right .word").nth(4).click()
    seen.page.wait_for_selector("canvas.painted")
    assert seen.page.locator("#maps .map").first.locator("canvas.painted").count() == 2


def test_another_scene_is_described(visit):
    seen = visit("#scene=24").written()
    before = seen.words("left")
    seen.ask_again(lambda: seen.page.click("#another"))
    assert "Scene 25" in seen.text("#scene")
    assert seen.words("left") != before


def test_a_picture_can_be_pasted_and_chosen(visit, tmp_path):
    seen = visit("#scene=24").written()
    before = seen.words("left")
    picture(9).save(tmp_path / "airport.png")
    seen.ask_again(lambda: seen.page.set_input_files("#file", tmp_path / "airport.png"))
    chosen = seen.words("left")
    assert chosen != before
    assert seen.text("figcaption") == "airport.png"
    paste = """async (url) => {
      const held = new DataTransfer();
      held.items.add(new File([await (await fetch(url)).blob()], "pasted.png", { type: "image/png" }));
      document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: held, bubbles: true }));
    }"""
    seen.page.route("**/airport.png", lambda route: route.fulfill(path=tmp_path / "airport.png"))
    seen.ask_again(lambda: seen.page.evaluate(paste, f"{seen.url}/airport.png"))
    assert seen.text("figcaption") == "pasted.png"
    assert seen.words("left") == chosen


def test_an_answer_can_be_stopped(visit):
    seen = visit("#scene=24").written()
    whole = seen.words("left")
    seen.page.route("**/v1/chat/completions", lambda route: None)  # an answer that does not come
    seen.page.click("#go")
    seen.page.wait_for_selector("#stop:not([hidden])")
    seen.page.click("#stop")
    seen.page.wait_for_selector("html[data-busy=false]")
    assert seen.text("#status") == "Stopped."
    seen.page.unroute("**/v1/chat/completions")
    seen.ask_again(lambda: seen.page.locator("#beta").fill("1"))
    assert seen.words("left") == whole, "a slider finishes what was stopped"


def test_the_second_scene_is_one_on_which_the_method_is_wrong(visit):
    seen = visit().written()
    assert "wrong" not in seen.text("#scene")
    seen.ask_again(lambda: seen.page.click("#another"))
    assert "Here ReWEIGH is wrong" in seen.text("#scene")
    second = seen.text("#scene")
    seen.ask_again(lambda: seen.page.click("#another"))
    assert "Scene 0" in seen.text("#scene")
    seen.ask_again(lambda: seen.page.click("#wrong"))
    assert seen.text("#scene") == second


def test_a_photograph_gets_a_banner_on_the_drawn_model(visit):
    seen = visit().written()
    assert seen.page.locator("#strange").is_hidden()
    seen.drop(("photo.png", picture(8).resize((300, 200))))
    assert "not a drawn scene" in seen.text("#strange")
    seen.drop(("drawn.png", picture(8)))
    assert seen.page.locator("#strange").is_hidden()


def test_small_words_are_said_to_be_not_judged(visit):
    seen = visit("#scene=24").written()
    seen.page.locator("#left .word.plain", has_text="The").first.click()
    assert "is not judged" in seen.text("#step-say")
    assert seen.page.locator("#left .word.plain .bar").count() == 0
    assert seen.page.locator("#left .word.fine .bar").count() > 0
