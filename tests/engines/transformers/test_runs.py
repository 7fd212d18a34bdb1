"""A run belongs to one caller: its own beta, trace and evidence, beside other runs and base traffic."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import numpy as np
import pytest
import torch

import reweigh
import twin
from checkpoints import VOCABULARY
from reweigh.engines.base import Decoder
from reweigh.engines.session import tie
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
    with rw.using(beta=betas):
        mixed = generate(case, inputs, **options)
    for row, beta in enumerate(betas):
        with rw.using(beta=beta):
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
    with rw.using(beta=[7.0, BETA]):
        assert_same(generate(case, inputs), expected)
    with rw.using(beta=[BETA, 0.0]):
        assert_same(generate(case, inputs), base)
    with (
        pytest.raises(InputError, match="3 betas"),
        rw.using(beta=[1] * 3),
    ):
        generate(case, inputs)
    with pytest.raises(InputError, match="beta"), rw.using(beta=[1.0, -1.0]):
        pass


@pytest.mark.parametrize("family", ["llava"])
def test_a_block_without_a_trace_says_how_to_get_one(case):
    with attach(case).using() as run, pytest.raises(InputError, match="trace") as caught:
        _ = run.trace
    assert "using(trace=True)" in caught.value.hint


@pytest.mark.parametrize("family", ["llava", "instructblip"])
def test_a_call_inside_a_block_takes_its_settings(case):
    inputs = case.inputs()
    rw = attach(case)
    base = generate(case, inputs)
    with rw:
        edited = generate(case, inputs)
    fixed = {"do_sample": False, "max_new_tokens": STEPS, "min_new_tokens": STEPS}
    assert torch.equal(rw.generate(**inputs, **fixed), edited.sequences)
    with rw.using(beta=0.0, trace=True) as run:
        assert torch.equal(rw.generate(**inputs, **fixed), base.sequences)
        assert len(run.trace) == STEPS


@pytest.mark.parametrize("family", ["llava"])
def test_blocks_of_one_model_do_not_nest(case):
    inputs = case.inputs()
    rw = attach(case)
    with rw:
        edited = generate(case, inputs)
    for inner, words in (
        (rw, "this decoder"),
        (rw.using(beta=0.0), "this decoder"),
        (attach(case), "another"),
    ):
        with rw:
            with pytest.raises(UnsupportedError, match=words), inner:
                pass
            assert_same(generate(case, inputs), edited)
    assert len(case.model._forward_hooks) == 0
    with pytest.raises(InputError, match="'beta'"):
        Decoder(rw.decoder.anatomy).run(beta=1.0)


@pytest.mark.parametrize("family", ["llava"])
def test_a_block_may_use_another_table(case, tmp_path):
    one = twin.table(VOCABULARY, layer=1, seed=7)
    one.save_pretrained(tmp_path)
    for table in (one, tmp_path):
        with attach(case, force=True).using(table=table) as run:
            assert (run.table.layer, run.table.fingerprint) == (1, one.fingerprint)


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
            with rw.using(trace=True) as request:
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
def test_tasks_of_one_thread_have_their_own_runs(case):
    inputs = case.inputs()
    rw = attach(case)
    base = generate(case, inputs)
    with rw:
        edited = generate(case, inputs)

    async def one(beta, pauses):
        if beta is None:
            await asyncio.sleep(0)
            return generate(case, inputs), None
        with rw.using(beta=beta, trace=True) as request:
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
def test_a_task_that_outlives_its_block_is_not_edited_by_another(case):
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
@pytest.mark.parametrize("plain", [True, False])
def test_an_asynchronous_generator_may_be_closed_by_a_task_of_its_reader(case, plain):
    inputs = case.inputs()
    rw = attach(case)
    base = generate(case, inputs)

    async def texts():
        with rw if plain else rw.using():
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
def test_a_block_is_left_where_it_was_entered(case):
    inputs = case.inputs()
    rw, elsewhere = attach(case), contextvars.copy_context()
    base = generate(case, inputs)
    elsewhere.run(rw.__enter__)
    with pytest.raises(ReweighError, match="not entered"):
        rw.__exit__(None, None, None)
    assert_same(generate(case, inputs), base)
    assert_differ(elsewhere.run(generate, case, inputs), base)
    elsewhere.run(rw.__exit__, None, None, None)
    assert_same(elsewhere.run(generate, case, inputs), base)
    assert not case.model._forward_hooks


@pytest.mark.parametrize("family", ["llava"])
def test_evidence_may_be_measured_inside_a_block(case):
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
def test_options_that_cannot_be_used_are_refused_at_once(case, options, message):
    with pytest.raises(InputError, match=message), attach(case).using(**options):
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
        with tie(decoder):
            assert_same(generate(case, inputs), base)
        assert len(decoder.said) == 1
        assert_same(decoder.said[0], expected)


@pytest.mark.parametrize("family", ["llava"])
def test_the_evidence_of_a_run_is_that_of_its_own_prompt(case):
    inputs = [case.inputs([1]), case.inputs([2, None], TEXTS[:2])]
    rw = attach(case)
    with rw.using() as run:
        assert run.evidence == []
        generate(case, inputs[0])
        first = run.evidence
        generate(case, inputs[1])
    expected = twin.evidence(case.model, inputs[1], rw.layer)
    assert len(first) == 1
    assert [row is None for row in run.evidence] == [False, True]
    found = run.evidence[0]
    np.testing.assert_allclose(found.values[0], expected[0][list(found.tokens)], atol=1e-6)
