"""The page keeps to its server, shows everything as text, and is honest about what it cannot show."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import httpx
import pytest
from live import picture
from seen import frames

from reweigh.serve.app import Server
from reweigh.serve.served import Served

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=document.title='owned'>"


def test_no_request_goes_anywhere_else(visit):
    seen = visit("#scene=24").written()
    seen.page.locator("#right .word").nth(4).click()
    seen.page.wait_for_selector("canvas.painted")
    origins = {urlsplit(url).netloc for url in seen.requests if not url.startswith(("data:", "blob:"))}
    assert origins == {urlsplit(seen.url).netloc}
    assert not seen.errors


def test_a_hostile_answer_and_file_name_stay_text(visit):
    def before(page):
        page.route(
            "**/v1/chat/completions",
            lambda route: route.fulfill(
                content_type="text/event-stream", body=frames("A ", HOSTILE, " <b>x</b>")
            ),
        )

    seen = visit("#scene=24", before=before).written()
    seen.drop((HOSTILE + ".png", picture(3)))
    assert seen.text("figcaption") == HOSTILE + ".png"
    assert HOSTILE in seen.page.locator("#right").evaluate("node => node.textContent")
    for place in range(seen.page.locator("#right .word").count()):
        seen.page.locator("#right .word").nth(place).click()
    assert (
        seen.page.locator("#right img, #right b, #left img, #step img, #step b, figcaption img").count() == 0
    )
    assert seen.page.title() != "owned"
    assert not seen.errors


def test_a_hostile_link_shows_nothing_of_its_own(visit):
    seen = visit(
        "#picture=javascript:alert(1)&question=%3Cb%3Ehi&beside=%3Cb%3E&beta=x&layer=99&step=-1&answer=__proto__"
    )
    seen.page.wait_for_selector("#trouble:not([hidden])")
    assert "no picture" in seen.text("#trouble")
    assert seen.page.input_value("#question") == "<b>hi"
    assert seen.page.input_value("#beside") == "base"
    assert seen.text("#layer-shown") == "1 of 5"
    assert not seen.errors


def test_what_is_not_a_picture_is_refused_in_words(visit):
    seen = visit("#scene=24").written()
    broken = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"hello"}
    seen.page.set_input_files("#file", broken)
    assert seen.text("#trouble") == "notes.txt is not a picture"
    seen.page.set_input_files("#file", {**broken, "name": "x.png", "mimeType": "image/png"})
    seen.page.wait_for_selector("#trouble:text('x.png is not a picture this browser can show')")
    assert seen.words("left"), "the old answer is still there"


def test_an_error_of_the_server_is_shown(visit):
    body = json.dumps({"error": {"message": "the queue is full <b>", "code": "full"}})
    seen = visit(
        "#scene=24",
        before=lambda page: page.route(
            "**/v1/chat/completions", lambda route: route.fulfill(status=429, body=body)
        ),
    )
    seen.page.wait_for_selector("#trouble:not([hidden])")
    assert seen.text("#trouble") == "the queue is full <b>"


def test_one_side_that_fails_does_not_cut_off_the_other(visit):
    seen = visit("#scene=24").written()
    ours = seen.words("right")

    def refuse_vcd(route):
        if '"vcd"' in (route.request.post_data or ""):
            route.fulfill(status=400, body=json.dumps({"error": {"message": "vcd is tired"}}))
        else:
            route.continue_()

    seen.page.route("**/v1/chat/completions", refuse_vcd)
    seen.ask_again(lambda: seen.page.select_option("#beside", "vcd"))
    assert seen.text("#trouble") == "vcd is tired"
    assert seen.words("right") == ours
    assert not seen.words("left"), "the base model's words must not stand under another name"


def test_a_model_without_a_table_is_served_honestly(visit, world, running_server):
    running = running_server(Server(Served(world.model, world.processor, name="plain")))
    seen = visit(url=running.url)
    seen.page.wait_for_selector("#notice:not([hidden])")
    assert "without a reference table" in seen.text("#notice")
    assert "Drop a picture here" in seen.text("#stage")
    assert not seen.page.locator("#right").is_visible()
    assert not seen.page.locator("#beta").is_visible()
    assert not seen.page.locator("#another").is_visible()
    seen.page.click("#go")
    assert "Add a picture first" in seen.text("#trouble")
    seen.drop(("a.png", picture(3)))
    assert seen.words("left")
    assert seen.page.locator(".word .bar").count() == 0
    assert not seen.errors


def test_a_model_that_cannot_be_read_is_said_to_be(visit, house):
    facts = httpx.get(f"{house.url}/inspect/facts", timeout=60).json()
    facts["parity"]["holds"] = False
    facts["reweigh"] |= {
        "available": False,
        "reason": "norm and head do not reproduce its logits",
        "layers": [],
    }
    seen = visit(before=lambda page: page.route("**/inspect/facts", lambda route: route.fulfill(json=facts)))
    seen.page.wait_for_selector("#notice:not([hidden])")
    assert "do not reproduce its logits" in seen.text("#notice")
    assert "without judging their words" in seen.text("#notice")


def test_places_that_are_not_known_are_not_painted(visit):
    layer = {"layer": 2, "dmrr": 0.1, "b": 0.1, "s": 0.0, "max": 1.0}
    cells = [[0.001, 1.0], [None, 0.1]]
    grid = {"image": 0, "rows": 2, "cols": 2, "cells": cells}
    crops = [{**grid, "tile": 0, "covers": None}, {**grid, "tile": 1, "covers": "whole"}]
    told = [
        {"token": 1, "text": "a", "layers": [{**layer, "grids": []}], "reason": "this family has no grid"},
        {"token": 2, "text": "b", "layers": [{**layer, "grids": crops}], "reason": None},
    ]
    seen = visit(
        "#scene=24",
        before=lambda page: page.route("**/inspect/heat", lambda route: route.fulfill(json=told.pop(0))),
    ).written()
    seen.page.locator("#left .word").nth(0).click()
    seen.page.wait_for_selector("#maps .map")
    assert "No map: this family has no grid" in seen.text("#maps")
    assert seen.page.locator("canvas.painted").count() == 0
    seen.page.locator("#left .word").nth(1).click()
    seen.page.wait_for_selector("canvas.painted")
    assert seen.text("#maps .crop") == "picture 1, crop 1"


def test_a_key_is_asked_for_and_used(visit, serving):
    running = serving(key="open sesame")
    seen = visit(url=running.url)
    seen.page.fill("#key", "wrong")
    seen.page.click("#key-form button")
    seen.page.wait_for_selector("#trouble:text('missing or wrong')")
    seen.page.fill("#key", "open sesame")
    seen.page.click("#key-form button")
    assert seen.written().words("right")


def test_words_are_cut_compared_and_linked_as_said(visit):
    seen = visit("#scene=24").written()

    def run(script, value):
        return seen.page.evaluate(script, value)

    def cut(*pieces):
        place, tokens = 0, []
        for piece in pieces:
            tokens.append({"start": place, "end": place + len(piece), "s": None})
            place += len(piece)
        script = """async ([text, tokens]) => (await import("/js/words.js")).cut(text, tokens)
            .map((word) => [word.before, word.text, word.after, word.tokens.length])"""
        return run(script, ["".join(pieces), tokens])

    assert cut("A", " te", "ddy", ".", "\n\n", "B") == [
        ["", "A", "", 1],
        [" ", "teddy", "", 2],
        ["", ".", "\n\n", 1],
        ["", "B", "", 1],
    ]
    assert cut("🐶", " x", "", "y") == [["", "🐶", "", 1], [" ", "xy", "", 3]]
    assert cut("一", "只") == [["", "一", "", 1], ["", "只", "", 1]]
    differ = "async ([a, b]) => (await import('/js/words.js')).differences(a, b)"
    assert run(differ, [["a", "dog", "sat"], ["a", "cat", "sat"]]) == [[False, True, False]] * 2
    assert run(differ, [[], ["x"]]) == [[], [True]]
    link = "async (state) => { const m = await import('/js/keep.js'); return m.read(m.write(state)); }"
    state = {"scene": 7, "beta": 1.25, "layer": 2, "step": 0, "question": "a & b #?=\n<i>", "beside": "vcd"}
    assert run(link, state) == {**state, "picture": None, "answer": None}
    reach = "async (t) => (await import('/js/words.js')).reach(t)"
    assert run(reach, {"dmrr": 0.0035, "b": 0.005, "s": 0.3}) == pytest.approx(0.35)
    assert run(reach, {"dmrr": 1, "b": 0.005, "s": 0}) == 1
