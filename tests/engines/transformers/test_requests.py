"""A request belongs to one caller: its own beta, trace and evidence, beside other requests and base traffic."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
import torch

import reweigh
import twin
from checkpoints import VOCABULARY
from reweigh.engines.base import Decoder
from reweigh.engines.session import Session
from reweigh.errors import InputError, ReweighError, UnsupportedError
from sameness import assert_differ, assert_same

pytestmark = pytest.mark.numerics

BETA = 20.0
STEPS = 6
TEXTS = ["What is in the image?", "Describe.", "In the picture there"]


@pytest.fixture
def case(family, checkpoint):
    return twin.case(checkpoint(family))


def attach(case, **options):
    return reweigh.attach(case.model, case.processor, table=twin.table(VOCABULARY), beta=BETA, **options)


def generate(case, inputs, **options):
    kept = {"do_sample": False, "max_new_tokens": STEPS, "min_new_tokens": STEPS}
    kept |= {"return_dict_in_generate": True, "output_logits": True}
    with torch.no_grad():
        return case.model.generate(**inputs, **{**kept, **options})


@pytest.mark.parametrize("family", ["llava", "instructblip", "qwen2_5_vl"])
@pytest.mark.parametrize("beams", [1, 2])
def test_each_row_has_its_own_beta(case, beams):
    """Rows of a batch do not touch each other: each is the row of a batch that has its beta throughout."""
    inputs = case.inputs([1, 2, 3], TEXTS)
    betas = [BETA, 0.0, 0.5]
    rw, options = attach(case), {"num_beams": beams}
    with rw.request(beta=betas):
        mixed = generate(case, inputs, **options)
    for row, beta in enumerate(betas):
        with rw.request(beta=beta):
            alone = generate(case, inputs, **options)
        rows = slice(row * beams, (row + 1) * beams)
        assert torch.equal(mixed.sequences[row], alone.sequences[row])
        if beams == 1:  # beams that left the search may differ in their logits
            assert_same(mixed, alone, rows)
    base = generate(case, inputs, **options)
    assert torch.equal(base.sequences[1], mixed.sequences[1])
    if beams == 1:
        assert_same(base, mixed, slice(1, 2))
        assert_differ(base, mixed, slice(0, 1))


@pytest.mark.parametrize("family", ["llava"])
def test_a_row_without_image_needs_a_beta_too(case):
    inputs = case.inputs([None, 2], TEXTS[:2])
    rw = attach(case)
    base = generate(case, inputs)
    with rw:
        expected = generate(case, inputs)
    with rw.request(beta=[7.0, BETA]):
        assert_same(generate(case, inputs), expected)
    with rw.request(beta=[BETA, 0.0]):
        assert_same(generate(case, inputs), base)
    with (
        pytest.raises(InputError, match="3 betas"),
        rw.request(beta=[1] * 3),
    ):
        generate(case, inputs)
    with pytest.raises(InputError, match="beta"), rw.request(beta=[1.0, -1.0]):
        pass


@pytest.mark.parametrize("family", ["llava", "instructblip"])
def test_nested_requests_take_what_they_do_not_say_from_the_outer_one(case):
    inputs = case.inputs()
    rw = attach(case)
    base = generate(case, inputs)
    with rw:
        edited = generate(case, inputs)
    with rw.request(beta=0.0) as outer:
        assert_same(generate(case, inputs), base)
        with rw.request(trace=True) as inner:
            assert inner.beta == outer.beta == 0.0
            assert_same(generate(case, inputs), base)
        with rw.request(beta=BETA):
            assert_same(generate(case, inputs), edited)
        assert_same(generate(case, inputs), base)
        with rw:
            assert_same(generate(case, inputs), base)
    with rw:
        assert_same(generate(case, inputs), edited)


@pytest.mark.parametrize("family", ["llava"])
def test_a_nested_request_chooses_a_layer_of_the_outer_ones_table(case, tmp_path):
    for number in (1, 2):
        twin.table(VOCABULARY, layer=number, seed=7).save_pretrained(tmp_path)
    rw = attach(case, force=True)
    with rw.request(table=tmp_path, layer=2), rw.request(layer=1) as inner:
        assert inner.table.layer == 1
        assert inner.table.fingerprint == twin.table(VOCABULARY, layer=1, seed=7).fingerprint


@pytest.mark.parametrize("family", ["llava"])
def test_an_outer_trace_sees_what_inner_requests_decode(case):
    inputs = case.inputs()
    rw = attach(case)
    with rw.request(trace=True) as outer:
        generate(case, inputs)
        with rw.request(beta=0.5, trace=True) as inner:
            generate(case, inputs, max_new_tokens=2, min_new_tokens=2)
        generate(case, inputs, max_new_tokens=3, min_new_tokens=3)
    assert len(inner.trace) == 2
    assert len(outer.trace) == STEPS + 2 + 3
    assert inner.trace.beta == 0.5
    shifts = [row.shift for step in inner.trace.steps() for row in step.candidates]
    assert max(shifts) <= 0.5 < max(row.shift for step in outer.trace.steps() for row in step.candidates)
    with rw.request() as untraced, pytest.raises(InputError, match="trace"):
        _ = untraced.trace


def run_threads(*jobs):
    """Results of jobs in threads of their own, started together."""
    start, found = threading.Barrier(len(jobs)), [None] * len(jobs)

    def run(at):
        start.wait(timeout=60)
        found[at] = jobs[at]()

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    return found


@pytest.mark.parametrize("family", ["llava", "instructblip"])
def test_base_and_edited_traffic_share_a_model_at_the_same_time(case):
    inputs = [case.inputs([seed], [text]) for seed, text in enumerate(TEXTS)]
    rw = attach(case)
    base = [generate(case, x) for x in inputs]
    edited = []
    for x in inputs:
        with rw:
            edited.append(generate(case, x))

    def traced(x, steps):
        def job():
            with rw.request(trace=True) as request:
                for _ in range(3):
                    found = generate(case, x, max_new_tokens=steps, min_new_tokens=steps)
            return found, len(request.trace)

        return job

    plain = [lambda x=x: [generate(case, x) for _ in range(3)] for x in inputs]
    found = run_threads(*plain, *(traced(x, steps) for x, steps in zip(inputs, (2, 4, 6), strict=True)))
    for mine, theirs in zip(found[:3], base, strict=True):
        for one in mine:
            assert_same(one, theirs)
    for (mine, length), theirs, steps in zip(found[3:], edited, (2, 4, 6), strict=True):
        assert length == 3 * steps
        assert torch.equal(mine.sequences, theirs.sequences[:, : mine.sequences.shape[1]])


@pytest.mark.parametrize("family", ["llava"])
def test_tasks_of_one_thread_have_their_own_requests(case):
    inputs = case.inputs()
    rw = attach(case)
    base = generate(case, inputs)
    with rw:
        edited = generate(case, inputs)

    async def one(beta, pauses):
        if beta is None:
            await asyncio.sleep(0)
            return generate(case, inputs), None
        with rw.request(beta=beta, trace=True) as request:
            for _ in range(pauses):  # others open, decode and close in between
                await asyncio.sleep(0)
            inside = await asyncio.to_thread(generate, case, inputs)
            await asyncio.sleep(0)
            generate(case, inputs)
        return inside, len(request.trace)

    async def everything():
        return await asyncio.gather(one(BETA, 1), one(None, 0), one(0.0, 3), one(None, 0), one(BETA, 2))

    found = asyncio.run(everything())
    for (output, length), expected in zip(found, (edited, base, base, base, edited), strict=True):
        assert_same(output, expected)
        assert length in (None, 2 * STEPS)


@pytest.mark.parametrize("family", ["llava"])
def test_a_task_that_outlives_its_request_is_not_edited_by_another(case):
    """Its copied context still holds the closed request; whether others have one open must not matter."""
    inputs = case.inputs()
    rw = attach(case)
    base = generate(case, inputs)

    async def later(closed):
        await closed.wait()
        with torch.no_grad():
            return generate(case, inputs)

    async def everything():
        closed, other = asyncio.Event(), attach(case)
        with rw:
            task = asyncio.create_task(later(closed))
            await asyncio.sleep(0)
        with other:
            closed.set()
            return await task

    assert_same(asyncio.run(everything()), base)


@pytest.mark.parametrize("family", ["llava"])
def test_generators_may_be_read_in_turn(case):
    """Each generator opens a request and hands out texts; they end in the order they began."""
    inputs = case.inputs()
    rw = attach(case)
    base = generate(case, inputs)

    def texts(beta):
        with rw.request(beta=beta):
            for _ in range(2):
                yield generate(case, inputs)

    first, second = texts(BETA), texts(0.5)
    next(first), next(second), next(first)
    assert next(first, None) is None
    next(second)
    assert next(second, None) is None
    assert_same(generate(case, inputs), base)
    with attach(case).request(beta=0.0):
        assert_same(generate(case, inputs), base)


@pytest.mark.parametrize("family", ["llava"])
def test_what_opens_a_request_may_be_entered_again_and_anew(case):
    inputs = case.inputs()
    rw = attach(case)
    base = generate(case, inputs)
    opening = rw.request(trace=True)
    lengths = []
    for _ in range(2):
        with opening as request:
            generate(case, inputs)
        lengths.append(len(request.trace))
        assert_same(generate(case, inputs), base)
    with opening as outer, opening as inner:
        generate(case, inputs)
    assert [*lengths, len(outer.trace), len(inner.trace)] == [STEPS] * 4
    assert_same(generate(case, inputs), base)


@pytest.mark.parametrize("family", ["llava"])
def test_a_session_closes_its_own_request_whatever_was_opened_since(case):
    inputs = case.inputs()
    rw = attach(case)
    base = generate(case, inputs)
    rw.__enter__()
    later = rw.request(beta=0.0)
    later.__enter__()
    rw.__exit__(None, None, None)
    assert_same(generate(case, inputs), base)  # the later one, which is still open
    later.__exit__(None, None, None)
    assert_same(generate(case, inputs), base)
    with attach(case):  # nothing is left open for it to nest in
        assert_differ(generate(case, inputs), base)
    with pytest.raises(ReweighError, match="open"):
        rw.__exit__(None, None, None)


@pytest.mark.parametrize("family", ["llava"])
@pytest.mark.parametrize("plain", [True, False])
def test_an_asynchronous_generator_may_be_closed_by_another_task(case, plain):
    inputs = case.inputs()
    rw = attach(case)
    base = generate(case, inputs)

    async def texts():
        with rw if plain else rw.request():
            while True:
                yield generate(case, inputs)

    async def everything():
        reading = texts()
        edited = await anext(reading)
        await asyncio.create_task(reading.aclose())
        return edited, generate(case, inputs)

    edited, after = asyncio.run(everything())
    assert_differ(edited, base)
    assert_same(after, base)


@pytest.mark.parametrize("family", ["llava"])
def test_evidence_may_be_measured_while_a_request_is_open(case):
    inputs, other = case.inputs([1]), case.inputs([2], [TEXTS[0]])
    rw = attach(case)
    [alone] = reweigh.measure(case.model, other, layers=[rw.layer])
    with rw:
        edited = generate(case, inputs)
        [amid] = reweigh.measure(case.model, other, layers=[rw.layer])
        assert_same(generate(case, inputs), edited)
    assert torch.equal(amid.values, alone.values)


@pytest.mark.parametrize("family", ["llava"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": "1.1"}, "beta"),
        ({"beta": [1.0, -1.0]}, "beta"),
        ({"evidence": ["dog"]}, "evidence"),
        ({"observer": 3}, "observer"),
    ],
)
def test_options_that_cannot_be_used_are_refused_when_the_request_opens(case, options, message):
    with pytest.raises(InputError, match=message), attach(case).request(**options):
        pass


class Describing(Decoder):
    """A rival that writes a description first, by a generate of its own, and decodes with it in mind."""

    def __init__(self, anatomy, case, inputs, edited=None):
        super().__init__(anatomy)
        self.case, self.inputs, self.edited, self.said = case, inputs, edited, []

    def edit(self, forward):
        if forward.past < forward.prompt.end:
            self.said.append(self._describe())
        return forward.logits + 0.0

    def _describe(self):
        if self.edited is None:
            return generate(self.case, self.inputs)
        with self.edited:
            return generate(self.case, self.inputs)


@pytest.mark.parametrize("family", ["llava", "instructblip", "qwen2_5_vl"])
def test_a_decoder_may_generate_inside_a_generation(case):
    inputs, other = case.inputs([1]), case.inputs([2], [TEXTS[0]])
    rw = attach(case)
    base = generate(case, inputs)
    plain = generate(case, other)
    with rw:
        edited = generate(case, other)
    assert_differ(plain, edited)
    for session, expected in ((None, plain), (rw, edited)):
        decoder = Describing(rw.decoder.anatomy, case, other, session)
        with Session(case.model, case.processor, decoder):
            assert_same(generate(case, inputs), base)
        assert len(decoder.said) == 1
        assert_same(decoder.said[0], expected)


@pytest.mark.parametrize("family", ["llava"])
def test_a_request_of_another_decoder_does_not_nest(case):
    rw = attach(case)
    with rw, pytest.raises(UnsupportedError, match="another decoder"), attach(case):
        pass
    with pytest.raises(InputError, match="'beta'"):
        Decoder(rw.decoder.anatomy).request(beta=1.0)


@pytest.mark.parametrize("family", ["llava"])
def test_the_evidence_of_a_request_is_that_of_its_own_prompt(case):
    inputs = [case.inputs([1]), case.inputs([2, None], TEXTS[:2])]
    rw = attach(case)
    with rw.request() as outer:
        generate(case, inputs[0])
        with rw.request() as inner:
            assert inner.evidence == []
            generate(case, inputs[1])
        latest = outer.evidence
    expected = twin.evidence(case.model, inputs[1], rw.layer)
    assert [row is None for row in inner.evidence] == [False, True]
    found = inner.evidence[0]
    np.testing.assert_allclose(found.values[0], expected[0][list(found.tokens)], atol=1e-6)
    assert torch.equal(latest[0].values, found.values)
