"""The openai client against a running server: answers, streams, choices; the same tokens as ``rw.generate``."""

from __future__ import annotations

import openai
import pytest
import torch
from live import DESCRIBE, data_url, picture, user

import reweigh
from reweigh import world
from reweigh.families.prompts import encode, render_chat

MODEL = "reweigh-world"
TOLD = {"reweigh": {"evidence": True}}


def ids(choice):
    """Token ids of a choice that was asked for its evidence."""
    return [token["token"] for token in choice.reweigh["tokens"]]


def generated(session, pictures, text=DESCRIBE, *, beta=None, messages=None, **options):
    """What ``rw.generate`` writes for one prompt: token ids up to the end."""
    parts = [*({"type": "image"} for _ in pictures), {"type": "text", "text": text}]
    turns = messages or [{"role": "user", "content": parts}]
    inputs = encode(
        session.model, session.processor, [render_chat(session.processor, turns)], [list(pictures)]
    )
    options = {"max_new_tokens": 512, "do_sample": False, **options}
    with session.using(beta=beta), torch.no_grad():
        output = session.model.generate(**inputs, **options)
    return output[0, inputs["input_ids"].shape[1] :].tolist()


def test_an_answer_has_the_tokens_of_generate(house, reference):
    answer = house.client().chat.completions.create(model=MODEL, messages=[user(picture(0))], extra_body=TOLD)
    choice = answer.choices[0]
    expected = generated(reference, [picture(0)])
    assert ids(choice) == expected
    assert choice.message.content == reference.processor.decode(expected, skip_special_tokens=True).strip()
    assert (choice.finish_reason, choice.message.role, answer.model) == ("stop", "assistant", MODEL)
    assert answer.usage.completion_tokens == len(expected)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + len(expected)


def test_base_and_edited_answers_share_one_request(house, reference):
    answer = house.client().chat.completions.create(
        model=MODEL,
        messages=[user(picture(1))],
        n=3,
        extra_body={"reweigh": {"beta": [0, 2.1, 5], "evidence": True}},
    )
    expected = [generated(reference, [picture(1)], beta=beta) for beta in (0.0, 2.1, 5.0)]
    assert [ids(choice) for choice in answer.choices] == expected
    assert len({tuple(row) for row in expected}) > 1


def test_a_stream_is_the_answer_in_pieces(house):
    client = house.client()
    asked = {"model": MODEL, "messages": [user(picture(2))]}
    whole = client.chat.completions.create(**asked)
    chunks = list(
        client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage == whole.usage
    assert not chunks[-1].choices
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]][-1] == "stop"
    assert len(chunks) > 10


def test_several_images_and_turns(house, reference):
    first, second = picture(3), picture(4)
    text = "What is on the left side?"
    turns = [
        {"role": "system", "content": "Be brief."},
        user(first, second),
        {"role": "assistant", "content": "A scene."},
        {"role": "user", "content": text},
    ]
    answer = house.client().chat.completions.create(model=MODEL, messages=turns, extra_body=TOLD)
    plain = [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "image"}] * 2 + [{"type": "text", "text": DESCRIBE}]},
        {"role": "assistant", "content": [{"type": "text", "text": "A scene."}]},
        {"role": "user", "content": [{"type": "text", "text": text}]},
    ]
    assert ids(answer.choices[0]) == generated(reference, [first, second], messages=plain)


def test_text_without_image_is_the_base_model(house, reference):
    answer = house.client().chat.completions.create(
        model=MODEL, messages=[user(text="Say something.")], max_tokens=8, extra_body=TOLD
    )
    assert ids(answer.choices[0]) == generated(reference, [], "Say something.", max_new_tokens=8)
    assert all(token["dmrr"] is None for token in answer.choices[0].reweigh["tokens"])


@pytest.mark.parametrize("options", [{"temperature": 1.0}, {"temperature": 0.7, "top_p": 0.8}])
def test_a_seed_gives_the_tokens_of_generate(house, reference, options):
    answer = house.client().chat.completions.create(
        model=MODEL, messages=[user(picture(5))], n=2, seed=11, max_tokens=30, **options, extra_body=TOLD
    )
    for index, choice in enumerate(answer.choices):
        torch.manual_seed(11 + index)
        expected = generated(
            reference, [picture(5)], do_sample=True, top_k=0, max_new_tokens=30, **{"top_p": 1.0, **options}
        )
        assert ids(choice) == expected


def test_stop_strings_end_the_text_before_them(house):
    client = house.client()
    asked = {"model": MODEL, "messages": [user(picture(0))]}
    whole = client.chat.completions.create(**asked).choices[0].message.content
    stop = whole[len(whole) // 2 : len(whole) // 2 + 7]
    for stream in (False, True):
        answer = client.chat.completions.create(**asked, stop=["never said", stop], stream=stream)
        if stream:
            chunks = list(answer)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
            reason = chunks[-1].choices[0].finish_reason
        else:
            text, reason = answer.choices[0].message.content, answer.choices[0].finish_reason
        assert text == whole[: whole.index(stop)].rstrip()
        assert reason == "stop"


def test_the_length_is_kept(house):
    answer = house.client().chat.completions.create(model=MODEL, messages=[user(picture(0))], max_tokens=3)
    assert (answer.choices[0].finish_reason, answer.usage.completion_tokens) == ("length", 3)


def test_logprobs_are_those_of_the_edited_distribution(house):
    answer = house.client().chat.completions.create(
        model=MODEL,
        messages=[user(picture(0))],
        max_tokens=12,
        logprobs=True,
        top_logprobs=3,
        extra_body={"reweigh": {"trace": True}},
    )
    choice = answer.choices[0]
    assert len(choice.logprobs.content) == 12
    for entry, step in zip(choice.logprobs.content, choice.reweigh["tokens"], strict=True):
        assert entry.token == entry.top_logprobs[0].token == step["text"]
        assert entry.logprob == entry.top_logprobs[0].logprob
        first, second = entry.top_logprobs[:2]
        edited = {one["text"]: one["z_after"] for one in step["candidates"]}
        if second.token in edited:
            assert first.logprob - second.logprob == pytest.approx(
                edited[first.token] - edited[second.token], abs=1e-4
            )


def test_the_trace_is_that_of_the_library(house, reference):
    answer = house.client().chat.completions.create(
        model=MODEL, messages=[user(picture(6))], extra_body={"reweigh": {"trace": True}}
    )
    told = answer.choices[0].reweigh
    with reference.using(trace=True) as request:
        reference.answer([picture(6)], [DESCRIBE], max_new_tokens=512)
    steps = [step.to_json() for step in request.trace.steps()]
    assert len(told["tokens"]) == len(steps)
    assert (told["beta"], told["layer"]) == (reference.beta, reference.layer)
    for token, step in zip(told["tokens"], steps, strict=True):
        assert token["winner_after"]["token"] == step["winner_after"] == token["token"]
        assert [one["token"] for one in token["candidates"]] == [one["token"] for one in step["candidates"]]
        changed = step["winner_before"] != step["winner_after"]
        assert (token["replaced"] is not None) == changed
        own = next(one for one in step["candidates"] if one["token"] == token["token"])
        for name in ("dmrr", "b", "s"):
            assert token[name] == pytest.approx(own[name], abs=1e-6)
    assert any(token["replaced"] for token in told["tokens"])
    text = answer.choices[0].message.content
    for token in told["tokens"][:-1]:
        assert text[token["start"] : token["end"]].strip() == token["text"].strip()


def test_another_layer_and_another_decoder(house, reference):
    client = house.client()
    asked = {"model": MODEL, "messages": [user(picture(7))]}
    at_one = client.chat.completions.create(**asked, extra_body={"reweigh": {"layer": 1, "evidence": True}})
    one = reweigh.attach(reference.model, reference.processor, table=world.table_path(), layer=1)
    expected = generated(one, [picture(7)], beta=at_one.choices[0].reweigh["beta"])
    assert ids(at_one.choices[0]) == expected
    assert at_one.choices[0].reweigh["layer"] == 1
    base = client.chat.completions.create(
        **asked, extra_body={"reweigh": {"decoder": "base", "evidence": True}}
    )
    assert ids(base.choices[0]) == generated(reference, [picture(7)], beta=0.0)
    beam = client.chat.completions.create(**asked, extra_body={"reweigh": {"decoder": "beam"}})
    assert beam.choices[0].message.content
    stream = client.chat.completions.create(**asked, stream=True, extra_body={"reweigh": {"decoder": "vcd"}})
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def test_a_conversation_as_litellm_and_langchain_send_it_back(house):
    """With the fields that they add to an answer, the text before the image, and null where nothing was said."""
    told = {"provider_specific_fields": {"refusal": None}, "reasoning_content": None, "annotations": []}
    told |= {"tool_calls": None, "function_call": None, "audio": None, "thinking_blocks": None}
    shown = user(picture(5), text="What is in this image?")
    late = {"role": "user", "content": shown["content"][::-1], "name": None, "cache_control": None}
    for said in ({"content": "A room."}, {"content": None}, {}):
        turns = [late, {"role": "assistant", **said, **told}, {"role": "user", "content": "And what else?"}]
        answer = house.client().chat.completions.create(model=MODEL, messages=turns, max_tokens=8)
        plain = [shown, {"role": "assistant", "content": said.get("content") or ""}, turns[2]]
        expected = house.client().chat.completions.create(model=MODEL, messages=plain, max_tokens=8)
        assert answer.choices[0].message.content == expected.choices[0].message.content
    first = house.client().chat.completions.create(model=MODEL, messages=[late], max_tokens=30)
    assert "bench" in first.choices[0].message.content
    turn = {"role": "assistant", "content": "x", "thinking_blocks": [{}]}
    with pytest.raises(openai.BadRequestError, match="thinking_blocks"):
        house.client().chat.completions.create(model=MODEL, messages=[late, turn, late])


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("response_format", {"type": "json_object"}, 'send {"type": "text"}'),
        ("tools", [{"type": "function", "function": {"name": "f"}}], "writes plain text and calls no tools"),
        ("tool_choice", "required", 'send "none" or "auto"'),
        ("logit_bias", {"5": 1}, "leave it out or send {}"),
        ("prediction", {"type": "content"}, "leave it out"),
    ],
)
def test_what_is_not_supported_is_refused_with_what_is(house, field, value, said):
    with pytest.raises(openai.BadRequestError) as refused:
        house.client().chat.completions.create(
            model=MODEL, messages=[user(text="Hi")], extra_body={field: value}
        )
    assert (refused.value.code, refused.value.param) == ("unsupported_field", field)
    assert said in refused.value.message


def test_errors_are_those_the_client_knows(house):
    client = house.client()
    good = {"model": MODEL, "messages": [user(picture(0))]}

    def refused(kind, **changes):
        with pytest.raises(kind) as error:
            client.chat.completions.create(**{**good, **changes})
        return error.value

    assert refused(openai.NotFoundError, model="another").code == "model_not_found"
    assert refused(openai.BadRequestError, messages=[]).param == "messages"
    assert refused(openai.BadRequestError, temperature=3).param == "temperature"
    assert refused(openai.BadRequestError, n=17).param == "n"
    assert refused(openai.BadRequestError, tools=[{"type": "function"}]).param == "tools"
    assert refused(openai.BadRequestError, frequency_penalty=0.5).param == "frequency_penalty"
    assert refused(openai.BadRequestError, extra_body={"reweigh": {"bta": 1}}).param == "reweigh.bta"
    assert refused(openai.BadRequestError, extra_body={"reweigh": {"beta": -1}}).param == "reweigh"
    assert refused(openai.BadRequestError, extra_body={"reweigh": {"beta": [1, 2]}}).param == "reweigh.beta"
    assert refused(openai.BadRequestError, extra_body={"reweigh": {"layer": 4}}).param == "reweigh"
    assert "vcd" in refused(openai.BadRequestError, extra_body={"reweigh": {"decoder": "vdc"}}).message
    long = [user(text="word " * 2000)]
    assert refused(openai.BadRequestError, messages=long).code == "context_length_exceeded"
    broken = "data:image/png;base64," + data_url(picture(0))[40:200]
    for url, status in ((broken, 422), ("data:,x", 400), ("https://example.org/a.png", 400), ("x", 400)):
        part = {"type": "image_url", "image_url": {"url": url}}
        kind = openai.UnprocessableEntityError if status == 422 else openai.BadRequestError
        assert refused(kind, messages=[{"role": "user", "content": [part]}]).status_code == status
    for shown in ([], [picture(0)]):
        odd = [user(*shown, text="an <image> too many")]
        assert refused(openai.BadRequestError, messages=odd).param == "messages"
