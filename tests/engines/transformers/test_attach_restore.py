"""Leaving the context restores the model completely; attachments and threads do not disturb each other."""

from __future__ import annotations

import contextvars
import gc
import threading
import tracemalloc
from pathlib import Path

import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList, TextIteratorStreamer

import numerics
import reweigh
import twin
from checkpoints import FAMILIES, VOCABULARY, load
from reweigh.engines.transformers.manager import HookManager
from reweigh.errors import UnsupportedError

pytestmark = pytest.mark.numerics

BETA = 4.0
STEPS = 6


@pytest.fixture
def case(family, checkpoint):
    return twin.case(checkpoint(family))


def attach(case, beta=BETA, **options):
    return reweigh.attach(case.model, case.processor, table=twin.table(VOCABULARY, **options), beta=beta)


def generate(case, inputs, **options):
    with torch.no_grad():
        return case.model.generate(**inputs, **{"do_sample": False, "max_new_tokens": STEPS, **options})


def snapshot(model):
    """Everything an attachment could leave behind."""
    hooks = [
        (name, kind, list(own))
        for name, module in model.named_modules()
        for kind, own in vars(module).items()
        if "hooks" in kind and isinstance(own, dict)
    ]
    attributes = {
        name: {key: id(value) for key, value in vars(part).items()} for name, part in model.named_modules()
    }
    configs = [part.config.to_dict() for part in model.modules() if hasattr(part, "config")]
    generation = [
        part.generation_config.to_dict() for part in model.modules() if hasattr(part, "generation_config")
    ]
    return hooks, attributes, configs, generation


class Failing(LogitsProcessor):
    def __init__(self, error, step=2):
        self.error, self.left = error, step

    def __call__(self, input_ids, scores):
        self.left -= 1
        if not self.left:
            raise self.error
        return scores


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_left_after_use(case):
    inputs = case.inputs()
    generate(case, inputs)  # transformers itself keeps some values of the first run
    before = snapshot(case.model)
    rw = attach(case)
    assert snapshot(case.model) == before
    with rw:
        assert snapshot(case.model) != before
        generate(case, inputs)
    assert snapshot(case.model)[0] == before[0]
    changed = {
        (name, key)
        for name, own in snapshot(case.model)[1].items()
        for key in own.keys() | before[1][name].keys()
        if own.get(key) != before[1][name].get(key)
    }
    assert {key for _, key in changed} <= {"rope_deltas"}  # Qwen's own memory of the last prompt
    assert snapshot(case.model)[2:] == before[2:]


@pytest.mark.parametrize("family", ["llava", "instructblip"])
@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), SystemExit(3)])
def test_nothing_is_left_after_an_exception(case, error):
    inputs = case.inputs()
    base = generate(case, inputs)
    before = snapshot(case.model)
    rw = attach(case)
    with pytest.raises(type(error)), rw:
        generate(case, inputs, logits_processor=LogitsProcessorList([Failing(error)]))
    assert snapshot(case.model) == before
    with pytest.raises(type(error)), rw:
        raise error
    assert snapshot(case.model) == before
    with pytest.raises(type(error)):
        rw.generate(**inputs, max_new_tokens=STEPS, logits_processor=LogitsProcessorList([Failing(error)]))
    assert snapshot(case.model) == before
    assert torch.equal(base, generate(case, inputs))


@pytest.mark.parametrize("family", ["llava"])
def test_an_attachment_works_again_after_an_exception(case):
    inputs = case.inputs()
    rw = attach(case)
    expected = rw.generate(**inputs, do_sample=False, max_new_tokens=STEPS)
    with rw:
        with pytest.raises(ValueError, match="mine"):
            generate(case, inputs, logits_processor=LogitsProcessorList([Failing(ValueError("mine"))]))
        assert torch.equal(generate(case, inputs), expected)
        with pytest.raises(ValueError, match="features"):  # the forward itself fails
            generate(case, {**inputs, "pixel_values": torch.cat([inputs["pixel_values"]] * 2)})
        assert torch.equal(generate(case, inputs), expected)


@pytest.mark.parametrize("family", ["llava"])
def test_a_failed_forward_keeps_no_tensor(case):
    """The error's traceback may hold the pass; the attachment must not."""
    rw = attach(case)
    inputs = case.inputs()
    with rw:
        local = HookManager.of(rw.decoder.anatomy)._forward._local
        with pytest.raises(ValueError, match="features"):
            generate(case, {**inputs, "pixel_values": torch.cat([inputs["pixel_values"]] * 2)})
        assert (local.forward, local.outer_ids) == (None, None)


@pytest.mark.parametrize("family", ["llava"])
def test_two_attachments_one_after_another(case):
    inputs = case.inputs()
    weak, strong = attach(case, beta=1.0), attach(case, seed=5)
    alone = [rw.generate(**inputs, do_sample=False, max_new_tokens=STEPS) for rw in (weak, strong)]
    with weak:
        assert torch.equal(generate(case, inputs), alone[0])
    with strong:
        assert torch.equal(generate(case, inputs), alone[1])
    with weak:
        assert torch.equal(generate(case, inputs), alone[0])


@pytest.mark.parametrize("family", ["llava"])
def test_nested_attachments_of_one_model_are_refused(case):
    inputs = case.inputs()
    one, other = attach(case), attach(case, seed=5)
    generate(case, inputs)  # transformers puts hooks of its own on a model when it first runs
    before = snapshot(case.model)
    with one:
        expected = generate(case, inputs)
        with pytest.raises(UnsupportedError, match="another decoder"), other:
            pass
        with pytest.raises(UnsupportedError, match="another decoder"):
            other.generate(**inputs, max_new_tokens=2)
        reweigh.measure(case.model, inputs)  # edits nothing, and is not edited
        assert torch.equal(generate(case, inputs), expected)
    assert snapshot(case.model) == before


@pytest.mark.parametrize("family", ["llava"])
def test_the_same_attachment_may_be_entered_again(case):
    inputs = case.inputs()
    rw = attach(case)
    before = snapshot(case.model)
    with rw:
        expected = generate(case, inputs)
        assert torch.equal(rw.generate(**inputs, do_sample=False, max_new_tokens=STEPS), expected)
        assert torch.equal(generate(case, inputs), expected)  # still edited after the inner call
    with rw:
        assert torch.equal(generate(case, inputs), expected)
    assert snapshot(case.model) == before


@pytest.mark.parametrize("family", ["llava"])
def test_two_models_are_attached_at_once(case, checkpoint):
    other = twin.Case("qwen2_5_vl", *load(checkpoint("qwen2_5_vl")))
    one_rw, other_rw = attach(case), attach(other)
    one, two = case.inputs(), other.inputs()
    expected = [
        rw.generate(**x, do_sample=False, max_new_tokens=STEPS) for rw, x in [(one_rw, one), (other_rw, two)]
    ]
    with one_rw, other_rw:
        assert torch.equal(generate(case, one), expected[0])
        assert torch.equal(generate(other, two), expected[1])


def run_threads(jobs):
    """Run callables at the same time; give their results, raise what they raised."""
    results, errors = [None] * len(jobs), []
    start = threading.Barrier(len(jobs))

    def work(at):
        try:
            start.wait(timeout=60)
            results[at] = jobs[at]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]
    return results


@pytest.mark.parametrize("family", ["llava"])
def test_two_threads_with_two_models(case, checkpoint):
    other = twin.Case("gemma3", *load(checkpoint("gemma3")))
    parts = [(case, attach(case)), (other, attach(other))]
    inputs = [[part.inputs([seed]) for seed in range(4)] for part, _ in parts]
    expected = [
        [rw.generate(**x, do_sample=False, max_new_tokens=STEPS) for x in mine]
        for (_, rw), mine in zip(parts, inputs, strict=True)
    ]

    def job(at):
        part, rw = parts[at]

        def work():
            with rw:
                return [generate(part, x) for x in inputs[at]]

        return work

    for mine, theirs in zip(run_threads([job(0), job(1)]), expected, strict=True):
        assert all(torch.equal(one, two) for one, two in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("family", ["llava", "instructblip"])
def test_two_threads_with_one_model_and_one_attachment(case):
    rw = attach(case)
    inputs = [case.inputs([seed], [text]) for seed, text in [(1, "What is it?"), (2, "In the picture")] * 2]
    expected = [rw.generate(**x, do_sample=False, max_new_tokens=STEPS) for x in inputs]
    before = snapshot(case.model)
    own = [lambda x=x: rw.generate(**x, do_sample=False, max_new_tokens=STEPS) for x in inputs]
    for mine, theirs in zip(run_threads(own), expected, strict=True):
        assert torch.equal(mine, theirs)
    assert snapshot(case.model) == before
    plain = [generate(case, x) for x in inputs]
    assert not any(torch.equal(one, two) for one, two in zip(plain, expected, strict=True))
    with rw:  # a thread that opened no request is never edited
        others = run_threads([lambda x=x: generate(case, x) for x in inputs])
    for mine, theirs in zip(others, plain, strict=True):
        assert torch.equal(mine, theirs)
    assert snapshot(case.model) == before


class Gate(LogitsProcessor):
    """Stops a generation at its second step until it is let go."""

    def __init__(self):
        self.reached, self.go = threading.Event(), threading.Event()

    def __call__(self, input_ids, scores):
        self.reached.set()
        assert self.go.wait(timeout=60)
        return scores


@pytest.mark.parametrize("family", ["llava"])
def test_a_streamed_generation_opens_its_own_request(case):
    """The usual pattern: generate in a thread and read the stream; base traffic goes on beside it."""
    inputs = case.inputs()
    rw = attach(case)
    expected = rw.generate(**inputs, do_sample=False, max_new_tokens=STEPS)
    plain = generate(case, inputs)
    words = case.processor.tokenizer.decode(
        expected[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True
    )
    before = snapshot(case.model)
    streamer = TextIteratorStreamer(
        case.processor.tokenizer, skip_prompt=True, skip_special_tokens=True, timeout=60
    )
    gate = Gate()
    options = {**inputs, "do_sample": False, "max_new_tokens": STEPS, "streamer": streamer}
    options["logits_processor"] = LogitsProcessorList([gate])
    thread = threading.Thread(target=rw.generate, kwargs=options)
    thread.start()
    assert gate.reached.wait(timeout=60)
    assert torch.equal(generate(case, inputs), plain)
    gate.go.set()
    assert "".join(streamer) == words
    thread.join(timeout=60)
    assert snapshot(case.model) == before


@pytest.mark.parametrize("family", ["llava", "instructblip"])
def test_a_method_kept_from_inside_edits_nothing_outside(case):
    inputs = case.inputs()
    rw = attach(case)
    plain = generate(case, inputs)
    with rw:
        late = case.model.generate
    assert torch.equal(late(**inputs, do_sample=False, max_new_tokens=STEPS), plain)
    found = run_threads([lambda: late(**inputs, do_sample=False, max_new_tokens=STEPS)])[0]
    assert torch.equal(found, plain)


@pytest.mark.parametrize("family", ["llava"])
def test_a_generation_in_a_copied_context_is_edited_to_its_end(case):
    """What ``asyncio.to_thread`` does: the task's request goes along, and the block may be left while it runs."""
    inputs = case.inputs()
    rw = attach(case)
    expected = rw.generate(**inputs, do_sample=False, max_new_tokens=STEPS)
    before = snapshot(case.model)
    gate, found = Gate(), []
    options = {**inputs, "do_sample": False, "max_new_tokens": STEPS}
    options["logits_processor"] = LogitsProcessorList([gate])
    with rw:
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=lambda: context.run(lambda: found.append(case.model.generate(**options)))
        )
        thread.start()
        assert gate.reached.wait(timeout=60)
    gate.go.set()
    thread.join(timeout=60)
    assert torch.equal(found[0], expected)
    assert snapshot(case.model) == before


@pytest.mark.parametrize("family", ["llava"])
def test_an_attachment_can_be_made_and_dropped_without_a_trace(case):
    before = snapshot(case.model)
    for _ in range(3):
        attach(case)
    gc.collect()
    assert snapshot(case.model) == before


def test_a_function_of_the_users_own_on_the_model_comes_back(checkpoint):
    model, processor = load(checkpoint("llava"))
    case = twin.Case("llava", model, processor)
    inputs, calls = case.inputs(), []
    plain = model.generate

    def mine(*args, **kwargs):
        calls.append(1)
        return plain(*args, **kwargs)

    model.generate = mine
    with attach(case):
        generate(case, inputs)
    assert calls == [1]
    assert vars(model)["generate"] is mine


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl"])
def test_hooks_of_the_users_own_stay(case):
    seen = []
    hook = case.model.register_forward_hook(lambda *_: seen.append(1))
    try:
        with attach(case):
            generate(case, case.inputs(), max_new_tokens=2)
        assert seen == [1, 1]
        assert list(case.model._forward_hooks.values())
    finally:
        hook.remove()


def live_tensors():
    gc.collect()
    return sum(1 for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llava", "instructblip"])
def test_no_growth_over_two_hundred_generations(case):
    inputs = case.inputs()
    rw = attach(case)

    def rounds(count):
        for _ in range(count):
            with rw:
                generate(case, inputs, max_new_tokens=2)
            rw.generate(**inputs, do_sample=False, max_new_tokens=1)

    def held():
        """Objects that lines of this package have allocated; transformers itself keeps some more at each call."""
        gc.collect()
        ours = tracemalloc.Filter(True, str(Path(reweigh.__file__).parent / "*"))
        return sum(
            found.count for found in tracemalloc.take_snapshot().filter_traces([ours]).statistics("filename")
        )

    rounds(3)
    tensors = live_tensors()
    tracemalloc.start()
    try:
        rounds(10)
        first = held()
        rounds(90)
        second = held()
    finally:
        tracemalloc.stop()
    assert live_tensors() <= tensors
    assert (
        second - first < 180
    )  # over 180 generations: less than one object each; freed blocks are used again late


@pytest.mark.parametrize("family", ["llava"])
def test_no_tensor_outlives_a_generation(case):
    inputs = case.inputs()
    rw = attach(case)
    rw.generate(**inputs, max_new_tokens=2)
    before = live_tensors()
    for _ in range(5):
        rw.generate(**inputs, max_new_tokens=2)
    assert live_tensors() == before


@pytest.mark.parametrize("family", ["llava"])
def test_a_model_copied_beside_an_attachment_is_a_model_of_its_own(case):
    inputs = case.inputs()
    base = generate(case, inputs)
    rw = attach(case)
    other = numerics.copied(case.model)
    with rw:
        edited = generate(case, inputs)
        assert torch.equal(generate(twin.Case("llava", other, None), inputs), base)
    assert not torch.equal(edited, base)
