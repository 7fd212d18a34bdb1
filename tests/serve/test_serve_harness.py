"""What evaluation harnesses send: VLMEvalKit's client, and the settings that are vLLM's rather than OpenAI's."""

from __future__ import annotations

import copy

import httpx
import pytest
import torch
from live import DESCRIBE, data_url, picture, user

from reweigh.families.prompts import encode, render_chat
from reweigh.serve.app import Server
from reweigh.serve.batch import decode
from reweigh.serve.bounds import Bounds
from reweigh.serve.monitor import Metrics
from reweigh.serve.prepare import resized
from reweigh.serve.row import Row, Sampling
from reweigh.serve.served import Served
from reweigh.serve.wire import Message
from reweigh.world import table_path

MODEL = "reweigh-world"
THINKING = """{% for m in messages %}{% for c in m['content'] %}{% if c['type'] == 'image' %}<image>{% else %}
{{ c['text'] }}{% endif %}{% endfor %}{% endfor %}{% if enable_thinking %} think{% endif %}"""


def request(shown, **changes):
    """The body that VLMEvalKit posts with `--base-url`: LMDeployAPI's defaults, and what its image messages carry."""
    picture_part = {"type": "image_url", "image_url": {"url": data_url(shown), "min_pixels": 784}}
    content = [picture_part, {"type": "text", "text": DESCRIBE}]
    asked = {"model": MODEL, "messages": [{"role": "user", "content": content}], "n": 1}
    return {**asked, "max_tokens": 16384, "temperature": 0.0, **changes}


def post(house, body):
    return httpx.post(f"{house.url}/v1/chat/completions", json=body)


def generated(session, shown, **options):
    parts = [{"type": "image"}, {"type": "text", "text": DESCRIBE}]
    texts = [render_chat(session.processor, [{"role": "user", "content": parts}])]
    inputs = encode(session.model, session.processor, texts, [[shown]])
    with session.using(), torch.no_grad():
        output = session.model.generate(**inputs, **{"do_sample": False, **options})
    return output[0, inputs["input_ids"].shape[1] :].tolist()


def ids(answer):
    return [[token["token"] for token in choice["reweigh"]["tokens"]] for choice in answer.json()["choices"]]


def test_vlmevalkits_request_is_answered_and_told_how_long_it_may_be(house):
    whole, own = post(house, request(picture(0))), post(house, request(picture(0), max_tokens=None))
    assert whole.status_code == 200
    assert whole.json()["choices"] == own.json()["choices"]
    assert "; max_tokens=945" in whole.headers["x-reweigh"]  # the model's context less the prompt
    assert "max_tokens" not in own.headers["x-reweigh"]
    stream = post(house, request(picture(0), stream=True))
    assert "; max_tokens=945" in stream.headers["x-reweigh"]


@pytest.mark.parametrize(
    "options",
    [{"repetition_penalty": 1.5}, {"temperature": 0.9, "top_k": 3}, {"temperature": 0.9, "top_k": -1}],
)
def test_its_sampling_settings_are_those_of_generate(house, reference, options):
    extra = {"reweigh": {"evidence": True}, "seed": 5, "max_tokens": 40, **options}
    answer = post(house, request(picture(1), **extra))
    options = {**options, "top_k": max(0, options.get("top_k", 0)), "do_sample": "temperature" in options}
    torch.manual_seed(5)
    assert ids(answer) == [generated(reference, picture(1), max_new_tokens=40, **options)]
    plain = post(house, request(picture(1), **{**extra, "repetition_penalty": 1.0, "top_k": 0}))
    assert (ids(answer) == ids(plain)) == (options["top_k"] == 0 and "repetition_penalty" not in options)


def test_a_penalty_counts_the_row_alone_in_any_batch(world, reference):
    """Padding and other rows of the batch add nothing to the tokens that count as repeated."""
    rows, texts = [], {0: "", 1: ""}

    def send(piece):
        texts[piece.index] += piece.text

    for index, text in enumerate((DESCRIBE, DESCRIBE + " Be brief, please.")):
        shown = user(picture(index), text=text)
        row = Row(index, world.prepare([Message(**shown)], [picture(index)]), reference, send, most=30)
        row.beta, row.sampling = reference.beta, Sampling(repetition_penalty=1.5 if index == 0 else 1.0)
        rows.append(row)
    decode(rows, world.recall, Metrics())
    expected = generated(reference, picture(0), max_new_tokens=30, repetition_penalty=1.5)
    assert texts[0] == reference.processor.decode(expected, skip_special_tokens=True).strip()


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"top_k": -2}, "top_k"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"chat_template_kwargs": {"enable_thinking": True}}, "messages"),
        ({"chat_template_kwargs": {"add_generation_prompt": False}}, "messages"),
        ({"chat_template_kwargs": {"chat_template": "{{ 1 }}"}}, "messages"),
        ({"chat_template_kwargs": "x"}, "chat_template_kwargs"),
    ],
)
def test_what_would_change_nothing_or_everything_is_refused(house, wrong, param):
    answer = post(house, request(picture(0), **wrong))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_arguments_reach_the_chat_template(world, running_server):
    processor = copy.deepcopy(world.processor)
    processor.chat_template = THINKING
    served = Served(
        world.model, processor, name=MODEL, table=table_path(), template={"enable_thinking": True}
    )
    house = running_server(Server(served))
    prompts = [
        post(house, request(picture(0), max_tokens=1, **extra)).json()["usage"]["prompt_tokens"]
        for extra in ({}, {"chat_template_kwargs": {"enable_thinking": False}})
    ]
    assert prompts[0] == prompts[1] + 1


def test_pictures_have_the_area_that_a_request_asks_for(world, serving):
    shown = picture(0).resize((60, 30))

    def size(**asked):
        part = {"type": "image_url", "image_url": {"url": data_url(shown), **asked}}
        return resized([shown], [Message(role="user", content=[part])])[0].size

    assert size() == size(min_pixels=1800, max_pixels=1800) == (60, 30)
    assert size(max_pixels=450) == (30, 15)
    assert size(min_pixels=7200) == (120, 60)
    small = serving(Bounds(image_pixels=20_000))
    for asked in ({"min_pixels": 20_001}, {"min_pixels": 9, "max_pixels": 8}):
        body = request(shown)
        body["messages"][0]["content"][0]["image_url"] |= asked
        answer = post(small, body)
        assert answer.status_code == 400
        assert "min_pixels" in answer.json()["error"]["param"]
