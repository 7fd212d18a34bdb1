"""The page's own endpoints, against the library: scenes, evidence by layer and place, a text held against a picture."""

from __future__ import annotations

import base64
import io
import threading
from types import SimpleNamespace

import httpx
import pytest
from live import DESCRIBE, picture, user
from PIL import Image

import reweigh
from reweigh.families.prompts import build_inputs
from reweigh.measuring import check
from reweigh.serve import inspect
from reweigh.serve.app import Server
from reweigh.serve.inspect import _grids
from reweigh.serve.served import Served
from reweigh.world.scenes import scene
from reweigh.world.vocabulary import mentions


def post(running, path, **content):
    return httpx.post(f"{running.url}/inspect/{path}", json=content, timeout=60)


def test_facts(house, reference):
    facts = httpx.get(f"{house.url}/inspect/facts", timeout=60).json()
    assert facts["model"] == "reweigh-world"
    assert facts["reweigh"]["available"]
    assert facts["reweigh"]["layers"] == [1, 2, 3]
    assert (facts["reweigh"]["layer"], facts["reweigh"]["beta"]) == (reference.layer, reference.beta)
    assert facts["reweigh"]["b0"] == reference.table.b0
    assert facts["parity"]["holds"]
    assert facts["grid"] == {"positions": 64, "tiles": [{"tile": 0, "rows": 8, "cols": 8}]}
    named = {one["name"]: one for one in facts["decoders"]}
    assert {"base", "reweigh", "vcd", "opera", "beam"} <= set(named)
    assert named["base"]["title"] == "Base (greedy)"
    assert not named["opera"]["streams"]
    assert named["vcd"]["is_rival"]


def test_scenes_are_the_worlds(house):
    told = httpx.get(f"{house.url}/inspect/scene?number=7", timeout=60).json()
    made = scene("evaluation", 7)
    shown = Image.open(io.BytesIO(base64.b64decode(told["image"].partition(",")[2])))
    assert shown.tobytes() == made.image().tobytes()
    assert told["objects"] == made.counts
    for number, status in (("-1", 400), ("x", 400), ("1e3", 400), ("99999999", 404), ("9" * 5000, 400)):
        assert httpx.get(f"{house.url}/inspect/scene?number={number}").status_code == status


def test_heat_is_the_librarys_grid_at_every_layer(house, reference):
    token = reference.processor.tokenizer(" dog", add_special_tokens=False)["input_ids"][0]
    by_word = post(house, "heat", messages=[user(picture(8))], word="dog").json()
    told = post(house, "heat", messages=[user(picture(8))], token=token).json()
    assert told == by_word
    assert (told["token"], told["text"]) == (token, " dog")
    inputs = build_inputs(reference.model, reference.processor, [picture(8)], [DESCRIBE])
    found = reweigh.measure(reference.model, inputs, layers=[1, 2, 3], locate=[token])[0]
    for one, layer in zip(told["layers"], (1, 2, 3), strict=True):
        grid = found.grid(layer, 0)
        assert one["grids"][0]["cells"] == grid.tolist()
        assert one["max"] == float(grid.max())
        assert one["dmrr"] == pytest.approx(float(grid.mean()), rel=1e-6)
        assert one["dmrr"] == float(found.at(layer)[token])
    own = told["layers"][1]
    assert own["b"] == reference.table.reference(token)
    assert own["s"] == pytest.approx(min(max((own["b"] - own["dmrr"]) / reference.table.b0, 0), 1))


def test_heat_of_several_images_has_a_grid_for_each(house):
    told = post(house, "heat", messages=[user(picture(8), picture(9))], word="dog").json()
    assert [grid["image"] for grid in told["layers"][0]["grids"]] == [0, 1]
    assert [grid["covers"] for grid in told["layers"][0]["grids"]] == ["whole", "whole"]


def test_what_a_grid_covers_is_reported_crops_and_centers():
    def covers(grids, *, crops=False, centre=False):
        anatomy = SimpleNamespace(family=SimpleNamespace(crops=crops))
        reader = SimpleNamespace(do_center_crop=centre)
        served = SimpleNamespace(anatomy=anatomy, processor=SimpleNamespace(image_processor=reader))
        names = ("image", "tile", "rows", "cols")
        patches = [SimpleNamespace(**dict(zip(names, grid, strict=True))) for grid in grids]
        return [one["covers"] for one in _grids(served, [*patches, None, *patches])]

    views = [(0, 0, 4, 4), (0, 1, 4, 4), (0, 2, 4, 4), (1, 0, 4, 4)]
    assert covers(views) == ["whole"] * 4
    assert covers(views, crops=True) == [None, None, "whole", "whole"]
    assert covers(views[-1:], centre=True) == ["centre"]


def test_pieces_are_completed_to_words_as_the_model_would_write_them(house, reference):
    tokenizer = reference.processor.tokenizer
    said = tokenizer("The image shows a dog and a", add_special_tokens=False)["input_ids"]
    [piece], [stop] = (
        tokenizer(text, add_special_tokens=False)["input_ids"][:1] for text in (" motorcycle", ".")
    )
    assert tokenizer.decode([piece]) == " mot"
    told = post(house, "words", messages=[user(picture(8))], said=said, tokens=[piece, stop]).json()
    assert told == {"words": {str(piece): "motorcycle"}}, "punctuation is no piece of a word"
    for wrong in (
        {"said": [10**6], "tokens": [1]},
        {"tokens": []},
        {"tokens": [1] * 13},
        {"said": [1] * 2000, "tokens": [1]},
    ):
        assert post(house, "words", messages=[user(picture(8))], **wrong).status_code == 400
    assert "no image" in post(house, "words", messages=[user()], tokens=[1]).text


def test_a_text_is_checked_as_the_command_checks_it(house, reference):
    text = "A dog and a person on a beach with a kite."
    told = post(house, "check", messages=[user(picture(3))], text=text).json()
    expected = check(reference.model, reference.processor, picture(3), text, table=reference.table).to_json()
    assert told.pop("layer") == reference.layer
    assert told.pop("b0") == reference.table.b0
    assert told == expected
    assert post(house, "check", messages=[user(picture(3))], text=text, layer=1).json()["layer"] == 1


def test_a_long_text_is_compared_beside_the_model_and_bounded_in_tokens(house, monkeypatch):
    threads, real = [], inspect.check_tokens

    def watched(*arguments):
        threads.append(threading.current_thread().name)
        return real(*arguments)

    monkeypatch.setattr(inspect, "check_tokens", watched)
    shown = [user(picture(3))]
    told = post(house, "check", messages=shown, text="dog " * 5_000).json()
    assert len(told["words"]) == 5_000
    assert [name.startswith("reweigh-prepare") for name in threads] == [True]
    answer = post(house, "check", messages=shown, text="\U0001f600" * 20_000)  # four tokens each
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "text")
    assert "80,000 tokens" in answer.json()["error"]["message"]
    assert len(threads) == 1


def test_what_cannot_be_inspected_is_refused_in_words(house):
    for path, content, words in (
        ("heat", {"word": "dog"}, "no image"),
        ("measure", {}, "no image"),
        ("check", {"text": "a dog"}, "no image"),
    ):
        answer = post(house, path, messages=[user()], **content)
        assert answer.status_code == 400
        assert words in answer.json()["error"]["message"]
    shown = [user(picture(0))]
    assert post(house, "heat", messages=shown, token=10**6).status_code == 400
    assert post(house, "heat", messages=shown, word=" ").status_code == 400
    assert post(house, "check", messages=shown, text=" ").status_code == 400
    assert post(house, "check", messages=shown, text="a dog", layer=4).status_code == 400
    assert post(house, "check", messages=shown).status_code == 400


def test_a_server_without_table_serves_the_rest(world, running_server):
    plain = Served(world.model, world.processor, name="plain")
    running = running_server(Server(plain))
    facts = httpx.get(f"{running.url}/inspect/facts", timeout=60).json()
    assert not facts["reweigh"]["available"]
    assert "table" in facts["reweigh"]["reason"]
    assert facts["reweigh"]["layers"] == []
    assert "reweigh" not in {one["name"] for one in facts["decoders"]}
    asked = {"model": "plain", "messages": [user(picture(0))], "max_tokens": 4}
    refused = httpx.post(f"{running.url}/v1/chat/completions", json={**asked, "reweigh": {"decoder": "vcd"}})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "decoder_not_offered")
    client = running.client()
    answer = client.chat.completions.create(**asked, extra_body={"reweigh": {"evidence": True}})
    assert [token["dmrr"] for token in answer.choices[0].reweigh["tokens"]] == [None] * 4
    assert answer.choices[0].reweigh["decoder"] == "base"
    for content in ({"decoder": "reweigh"}, {"beta": 1.0}, {"layer": 2}):
        refused = httpx.post(f"{running.url}/v1/chat/completions", json={**asked, "reweigh": content})
        assert refused.status_code == 400
        assert "available" in refused.json()["error"]["message"]
    assert httpx.get(f"{running.url}/inspect/scene?number=1").status_code == 404
    assert post(running, "measure", messages=[user(picture(0))]).status_code == 400
    heat = post(running, "heat", messages=[user(picture(0))], word="dog").json()
    assert [one["layer"] for one in heat["layers"]] == [4]
    assert heat["layers"][0]["b"] is None


def test_a_rivals_words_stand_against_the_table(house):
    asked = {"model": "reweigh-world", "messages": [user(picture(41))], "max_tokens": 12}
    for name in ("vcd", "beam"):
        extra = {"reweigh": {"decoder": name, "evidence": True}}
        told = house.client().chat.completions.create(**asked, extra_body=extra).choices[0].reweigh
        assert (told["decoder"], told["beta"], told["layer"]) == (name, None, 2)
        by_check = post(
            house, "check", messages=asked["messages"], text="".join(one["text"] for one in told["tokens"])
        ).json()["tokens"]
        assert [one["token"] for one in by_check] == [one["token"] for one in told["tokens"]]
        assert [one["s"] for one in by_check] == [one["s"] for one in told["tokens"]]
        assert any(one["s"] is not None for one in by_check)


def test_the_first_scene_is_one_the_method_corrects_and_the_second_one_it_harms(house, reference):
    """As the page says of them: objects named that are not there, and those that are."""
    shown = httpx.get(f"{house.url}/inspect/facts", timeout=60).json()["scenes"]

    def false_and_true(name, beta):
        made = scene("evaluation", shown[name])
        assert made.image().size == (shown["side"], shown["side"])
        with reference.using(beta=beta):
            text = reference.answer([made.image()], [DESCRIBE], max_new_tokens=512)[0].text
        found = {name for *_, name in mentions(text)}
        return found - set(made.objects), found & set(made.objects)

    (base_false, base_true), (false, true) = (false_and_true("first", beta) for beta in (0.0, None))
    assert base_false
    assert not false
    assert true > base_true
    (base_false, base_true), (false, true) = (false_and_true("wrong", beta) for beta in (0.0, None))
    assert false > base_false
    assert true < base_true
