"""What a decoder sees of forward passes, and the sequences that follow a cache."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList

import twin
from checkpoints import FAMILIES
from reweigh.engines.base import Decoder
from reweigh.engines.run import suspended
from reweigh.engines.session import tie
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.catalogue import family_of
from reweigh.families.positions import layout


class Watcher(Decoder):
    """Keeps what each pass showed; ``make`` makes new logits."""

    def __init__(self, anatomy, layers=(), make=None):
        super().__init__(anatomy)
        self.layers = frozenset(layers)
        self.make = make
        self.seen = []
        self.fresh = []

    def edit(self, forward):
        self.fresh.append([columns for _, _, columns in forward.new()])
        prompt, cache = forward.prompt, forward.arguments.get("past_key_values")
        kept = {name: getattr(forward, name) for name in ("past", "length", "rows")}
        kept |= {name: getattr(prompt, name) for name in ("start", "end", "batch", "inputs")}
        kept |= {"states": dict(forward.states), "logits": forward.logits.clone(), "cache": cache}
        kept |= {"columns": [list(row.positions) for row in prompt.rows]}
        self.seen.append(kept)
        return None if self.make is None else self.make(forward.logits)


@pytest.fixture
def case(family, checkpoint):
    return twin.case(checkpoint(family))


def watched(case, **options):
    watcher = Watcher(find_anatomy(case.model), **options)
    return tie(watcher), watcher


def generate(case, inputs, **options):
    with torch.no_grad():
        return case.model.generate(**inputs, **{"do_sample": False, "max_new_tokens": 3, **options})


# --- what a pass shows ---


@pytest.mark.parametrize("family", FAMILIES)
def test_each_block_is_read_where_transformers_reports_it(case):
    """Layer l is ``hidden_states[l + 1]``; the last one before the norm; -1 is what enters the first block."""
    inputs = case.inputs()
    reported = twin.hidden_states(case.model, inputs)
    session, watcher = watched(case, layers=range(-1, 4))
    with session, torch.no_grad():
        logits = case.model(**inputs).logits
    [shown] = watcher.seen
    for layer in range(-1, 3):
        assert torch.equal(shown["states"][layer], reported[layer + 1])
    decoder, head, _ = twin.parts(case.model)
    assert not torch.equal(shown["states"][3], reported[4])
    with torch.no_grad():
        assert torch.equal(decoder.norm(shown["states"][3]), reported[4])
        assert torch.equal(head(decoder.norm(shown["states"][3])), logits)
    assert torch.equal(shown["logits"], logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_passes_of_a_generation(case):
    inputs = case.inputs([1, 2], ["What is in it?", "Describe."])
    prompt = inputs["input_ids"].shape[1]
    session, watcher = watched(case, layers=[1])
    with session:
        generate(case, inputs, min_new_tokens=3)
    assert [(one["past"], one["length"]) for one in watcher.seen] == [
        (0, prompt),
        (prompt, 1),
        (prompt + 1, 1),
    ]
    assert {(one["start"], one["end"], len(one["rows"])) for one in watcher.seen} == {(0, prompt, 2)}
    rows = layout(family_of(case.model.config), case.model.config, inputs["input_ids"], inputs)
    columns = [[column for column, _ in row] for row in rows]
    assert all(one["columns"] == columns for one in watcher.seen)
    assert [row.patches for row in watcher.seen[0]["rows"]] == [[place for _, place in row] for row in rows]
    assert watcher.fresh == [columns, [], []]
    assert all(one["logits"].shape == (2, 1, 400) for one in watcher.seen)
    assert torch.equal(watcher.seen[0]["inputs"]["input_ids"], inputs["input_ids"])
    assert {id(one["batch"]) for one in watcher.seen} == {id(watcher.seen[0]["batch"])}


@pytest.mark.parametrize("family", FAMILIES)
def test_beams_are_the_sequence_of_their_prompt_several_times(case):
    inputs = case.inputs([1, 2], ["What is in it?", "Describe."])
    session, watcher = watched(case)
    with session:
        generate(case, inputs, num_beams=3)
    for one in watcher.seen:
        first, second = one["rows"][0], one["rows"][3]
        assert one["rows"] == [first] * 3 + [second] * 3
        assert first is not second
        assert len(one["columns"]) == 2


@pytest.mark.parametrize("family", ["llava"])
def test_without_a_cache_the_image_is_fresh_once(case):
    session, watcher = watched(case)
    with session:
        generate(case, case.inputs(), use_cache=False, min_new_tokens=3)
    assert [one["past"] for one in watcher.seen] == [0, 0, 0]
    assert [bool(fresh) for fresh in watcher.fresh] == [True, False, False]


@pytest.mark.parametrize("family", ["llava"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_a_branch_beside_the_prompt_has_sequences_of_its_own(case, use_cache):
    """Guidance runs an image-free sequence between the passes of the prompt."""
    inputs = case.inputs()
    session, watcher = watched(case)
    with session:
        generate(case, inputs, guidance_scale=1.5, use_cache=use_cache, min_new_tokens=3)
    main, branch = watcher.seen[::2], watcher.seen[1::2]
    assert len(main) == len(branch) == 3
    held = (inputs["input_ids"][0] == case.model.config.image_token_id).nonzero().flatten().tolist()
    assert [one["columns"] for one in main] == [[held]] * 3
    assert [one["columns"] for one in branch] == [[[]]] * 3
    assert [bool(fresh) for fresh in watcher.fresh] == [True] + [False] * 5


@pytest.mark.parametrize("family", ["llava"])
def test_placeholders_in_a_draft_are_no_image(case):
    """A draft looked up in the prompt may run into its placeholders; the pass that verifies it brings no image."""
    unique = 350
    inputs = twin.extended(case.inputs(), unique)
    ids = inputs["input_ids"][0]
    at = int((ids == case.model.config.image_token_id).nonzero().min())
    before, last = int(ids[at - 1]), ids.shape[0]
    assert unique not in ids[:-1].tolist()
    session, watcher = watched(
        case, make=lambda logits: torch.zeros_like(logits).index_fill(-1, torch.tensor([before]), 9.0)
    )
    options = {"prompt_lookup_num_tokens": 2, "max_matching_ngram_size": 1, "max_new_tokens": 4}
    with session:
        found = generate(case, inputs, **options)
    assert found[0, last:].tolist() == [before] * 4
    assert max(one["length"] for one in watcher.seen[1:]) == 3  # a draft of two was verified
    assert len({str(one["columns"]) for one in watcher.seen}) == 1


class CopiesTheCache(LogitsProcessor):
    """Goes on with a copy of the cache, as search methods do."""

    def __init__(self, watcher, model):
        self.watcher, self.model = watcher, model

    def __call__(self, input_ids, scores):
        twin_cache = copy.deepcopy(self.watcher.seen[-1]["cache"])
        with torch.no_grad():
            self.model(input_ids=input_ids[:, -1:], past_key_values=twin_cache)
        return scores


@pytest.mark.parametrize("family", ["llava"])
def test_a_copied_cache_inside_generate_keeps_the_columns(case):
    session, watcher = watched(case)
    with session:
        generate(
            case,
            case.inputs(),
            logits_processor=LogitsProcessorList([CopiesTheCache(watcher, case.model)]),
            min_new_tokens=3,
        )
    assert len(watcher.seen) == 6
    assert len({str(one["columns"]) for one in watcher.seen}) == 1


@pytest.mark.parametrize("family", ["llava"])
def test_a_prompt_that_failed_may_be_tried_again(case):
    """The failed attempt has noted columns on the user's cache already."""
    from transformers import DynamicCache

    inputs = case.inputs()
    ids = inputs["input_ids"]
    at = int((ids[0] == case.model.config.image_token_id).nonzero().min())
    session, watcher = watched(case)
    with session, torch.no_grad():
        cache = DynamicCache()
        case.model(input_ids=ids[:, :at], past_key_values=cache, use_cache=True)
        wrong = {**inputs, "pixel_values": torch.cat([inputs["pixel_values"]] * 2)}
        for _ in range(2):
            with pytest.raises(ValueError, match="features"):
                generate(case, wrong, past_key_values=cache)
        generate(case, inputs, past_key_values=cache)
    held = (ids[0] == case.model.config.image_token_id).nonzero().flatten().tolist()
    assert watcher.seen[-1]["columns"] == [held]


@pytest.mark.parametrize("family", ["llava", "instructblip"])
def test_new_logits_replace_the_old_and_none_leaves_them(case):
    inputs = case.inputs()
    session, _ = watched(
        case, make=lambda logits: torch.full_like(logits, -1.0).index_fill(-1, torch.tensor([77]), 9.0)
    )
    with session, torch.no_grad():
        assert generate(case, inputs)[0, -3:].tolist() == [77, 77, 77]
        assert case.model(**inputs).logits.max() == 9.0
    session, _ = watched(case)
    with torch.no_grad():
        base = case.model(**inputs).logits
        with session:
            assert torch.equal(case.model(**inputs).logits, base)


@pytest.mark.parametrize("family", ["llava", "instructblip"])
def test_a_decoders_own_passes_are_not_shown(case):
    inputs = case.inputs()
    session, watcher = watched(case, layers=[0])
    with session, torch.no_grad():
        with suspended(case.model):
            case.model(**inputs)
            with suspended(case.model):
                case.model(**inputs)
            case.model(**inputs)
        assert watcher.seen == []
        case.model(**inputs)
        assert len(watcher.seen) == 1


class Bold(Watcher):
    """A decoder with further hooks."""

    generation = {"max_new_tokens": 2, "min_new_tokens": 2}  # noqa: RUF012

    def __init__(self, anatomy):
        super().__init__(anatomy)
        self.coming, self.engaged = [], 0

    def engage(self, hooks):
        self.engaged += 1

        def undo():
            self.engaged -= 1

        return undo

    def before(self, coming):
        self.coming.append(coming)


@pytest.mark.parametrize("family", ["llava", "instructblip"])
def test_a_decoder_may_look_ahead_engage_and_give_defaults(case):
    inputs = case.inputs()
    bold = Bold(find_anatomy(case.model))
    session = tie(bold)
    with session, torch.no_grad():
        assert bold.engaged == 1
        prompt = inputs["input_ids"].shape[1]
        output = case.model.generate(**inputs, do_sample=False, max_new_tokens=3)
        assert len(bold.coming) == len(bold.seen) == 3  # what the caller passes wins
        assert [(one.past, one.length, len(one.rows)) for one in bold.coming] == [
            (one["past"], one["length"], 1) for one in bold.seen
        ]
        assert all(one.rows == bold.seen[0]["rows"] for one in bold.coming)
        assert case.model.generate(**inputs, do_sample=False).shape[1] == output.shape[1] - 1
        assert prompt
    assert bold.engaged == 0


@pytest.mark.parametrize("family", ["llava"])
def test_hooks_that_cannot_be_installed_leave_nothing(case):
    class Broken(Bold):
        def __init__(self, anatomy):
            super().__init__(anatomy)
            self.layers = frozenset({0, 99})

    broken = Broken(find_anatomy(case.model))
    before = dict(vars(case.model))
    counts = [len(part._forward_pre_hooks) + len(part._forward_hooks) for part in case.model.modules()]
    for _ in range(2):
        with pytest.raises(IndexError), tie(broken):
            pass
    assert broken.engaged == 0
    assert vars(case.model).keys() == before.keys()
    assert counts == [
        len(part._forward_pre_hooks) + len(part._forward_hooks) for part in case.model.modules()
    ]
    with watched(case)[0]:
        pass


@pytest.mark.parametrize("family", ["llava"])
def test_several_streams_between_blocks_are_refused(case):
    """AltUp families hand a stack of streams from block to block."""
    session, _ = watched(case, layers=[1])
    block = twin.parts(case.model)[0].layers[2]
    hook = block.register_forward_pre_hook(lambda _, args: (torch.stack([args[0]] * 4), *args[1:]))
    try:
        with session, torch.no_grad(), pytest.raises(UnsupportedError, match="block 1") as caught:
            case.model(**case.inputs())
    finally:
        hook.remove()
    assert "block" in caught.value.hint
