"""What clients send, two turns each: OpenAI's documented examples by its client, others' requests as they were recorded."""

from __future__ import annotations

import httpx
import pytest
from live import data_url, picture

MODEL = "reweigh-world"
URL = data_url(picture(24))
PICTURE = {"type": "image_url", "image_url": {"url": URL}}
ASK = {"type": "text", "text": "What is in this image?"}


def test_openais_examples(house):
    """The quick start, an image beside its question, a stream, log-probabilities; then a second turn."""
    client = house.client()
    hello = client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "developer", "content": "You are a helpful assistant."},
            {"role": "user", "content": "Hello!"},
        ],
    )
    assert hello.choices[0].message.role == "assistant"
    image = {**PICTURE, "image_url": {"url": URL, "detail": "auto"}}
    turns = [{"role": "user", "content": [ASK, image]}]
    first = client.chat.completions.create(model=MODEL, messages=turns, max_tokens=300)
    assert first.choices[0].message.content
    assert first.usage.total_tokens == first.usage.prompt_tokens + first.usage.completion_tokens
    turns += [first.choices[0].message, {"role": "user", "content": "And what else?"}]
    second = client.chat.completions.create(model=MODEL, messages=turns, max_tokens=20)
    assert second.choices[0].finish_reason in ("stop", "length")
    stream = client.chat.completions.create(model=MODEL, messages=turns[:1], stream=True)
    assert (
        "".join(chunk.choices[0].delta.content or "" for chunk in stream) == first.choices[0].message.content
    )
    scored = client.chat.completions.create(
        model=MODEL, messages=turns[:1], logprobs=True, top_logprobs=2, max_tokens=3
    )
    assert [len(one.top_logprobs) for one in scored.choices[0].logprobs.content] == [2, 2, 2]


LITELLM = {"provider_specific_fields": {"refusal": None}, "annotations": [], "tool_calls": None} | {
    "function_call": None
}
CLIENTS = {
    "langchain": (
        {"stream": False, "temperature": 0.0, "n": 1},
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [ASK, PICTURE]}],
        lambda said: {"role": "assistant", "content": said["content"]},
    ),
    "llama-index": (
        {"stream": False, "temperature": 0.1, "max_tokens": 64},
        [{"role": "user", "content": [ASK, {**PICTURE, "image_url": {"url": URL, "detail": "low"}}]}],
        lambda said: {"role": "assistant", "content": [{"type": "text", "text": said["content"]}]},
    ),
    "litellm": (
        {"user": "u", "metadata": {}, "stream_options": None, "tools": None},
        [{"role": "user", "content": [ASK, PICTURE]}],
        lambda said: {**said, **LITELLM},
    ),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_two_turns_as_other_clients_send_them(house, name):
    options, turns, back = CLIENTS[name]
    turns = list(turns)
    for question in ("Where is it?", None):
        body = {"model": MODEL, "messages": turns, "max_tokens": 20, **options}
        answer = httpx.post(f"{house.url}/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        said = answer.json()["choices"][0]["message"]
        assert said["content"]
        turns += [back(said), {"role": "user", "content": question}]
