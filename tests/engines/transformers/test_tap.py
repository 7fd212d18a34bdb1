"""What a listener sees of forward passes, and the trail of visual columns that follows a cache."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LogitsProcessor, LogitsProcessorList

import twin
from checkpoints import FAMILIES
from reweigh.engines.transformers.session import Session
from reweigh.engines.transformers.trail import Segment, Trail
from reweigh.errors import InputError, UnsupportedError
from reweigh.families import find_anatomy
from reweigh.families.catalogue import family_of
from reweigh.families.positions import layout
from reweigh.runtime.context import paused
from reweigh.runtime.decoder import Decoder, ForwardPass


class Watcher(Decoder):
    """Keeps what each pass showed; ``make`` makes new logits."""

    def __init__(self, anatomy, layers=(), make=None):
        super().__init__(anatomy)
        self.layers = frozenset(layers)
        self.make = make
        self.seen = []
        self.fresh = []

    def edit(self, forward):
        self.fresh.append(forward.new_columns())
        kept = {
            name: getattr(forward, name) for name in ("past", "length", "repeat", "start", "end", "cache")
        }
        kept |= {"states": dict(forward.states), "logits": forward.logits.clone(), "trail": forward.trail}
        kept |= {"columns": [list(row) for row in forward.trail.columns], "inputs": forward.inputs}
        self.seen.append(kept)
        return None if self.make is None else self.make(forward.logits)


@pytest.fixture
def case(family, checkpoint):
    return twin.case(checkpoint(family))


def tapped(case, **options):
    watcher = Watcher(find_anatomy(case.model), **options)
    return Session(case.model, case.processor, watcher), watcher


def generate(case, inputs, **options):
    with torch.no_grad():
        return case.model.generate(**inputs, **{"do_sample": False, "max_new_tokens": 3, **options})


# --- the trail by itself ---


def trail_of(*rows, seen=0, segments=()):
    return Trail([list(row) for row in rows], [[None] * len(row) for row in rows], list(segments), seen=seen)


def test_extending_adds_columns_after_the_start():
    trail = trail_of([1, 2], [])
    trail.extend(10, [[0, 3], [1]], [[None, None], [None]])
    assert trail.columns == [[1, 2, 10, 13], [11]]
    assert [len(row) for row in trail.patches] == [4, 1]
    assert trail.last == 13


def test_extending_forgets_what_was_noted_there_before():
    trail = trail_of([1, 12, 15], [11])
    trail.extend(10, [[0], [4]], [[None], [None]])
    assert trail.columns == [[1, 10], [14]]


def test_rows_may_be_repeated_but_not_mixed():
    trail = trail_of([1], [2], segments=[Segment(1, 2, ["a", None])])
    trail.memory["x"] = 1
    trail.extend(5, [[0], [], [], [1]], [[None], [], [], [None]])
    assert trail.columns == [[1, 5], [1], [2], [2, 6]]
    assert trail.segments[0].value == ["a", "a", None, None]
    assert not trail.memory
    for rows in (1, 3, 6):
        with pytest.raises(InputError, match="4 rows"):
            trail.extend(9, [[]] * rows, [[]] * rows)


def test_rewinding_drops_segments_and_memory():
    segments = [Segment(1, 3, ["a"]), Segment(8, 9, ["b"])]
    trail = trail_of([1, 2, 3, 8, 9], seen=20, segments=segments)
    trail.memory["x"] = 1
    trail.rewind(25)
    trail.rewind(12)
    assert (trail.seen, len(trail.segments), trail.memory) == (12, 2, {"x": 1})
    trail.rewind(8)
    assert trail.columns == [[1, 2, 3]]
    assert (trail.seen, [part.value for part in trail.segments], trail.memory) == (8, [["a"]], {})
    with pytest.raises(UnsupportedError, match=r"1\.\.3"):
        trail.rewind(2)
    trail.rewind(1)
    assert (trail.columns, trail.segments, trail.last) == ([[]], [], -1)


@given(
    columns=st.lists(st.sets(st.integers(0, 30)).map(sorted), min_size=1, max_size=3),
    seen=st.integers(0, 30),
    past=st.integers(0, 30),
    length=st.integers(1, 10),
)
def test_unseen_columns_are_those_of_the_pass_that_were_not_shown(columns, seen, past, length):
    trail = trail_of(*columns, seen=seen)
    expected = [[c - past for c in row if past <= c < past + length and c >= seen] for row in columns]
    assert (trail.unseen(past, length) or [[] for _ in columns]) == expected


@given(
    columns=st.lists(st.sets(st.integers(0, 20)).map(sorted), min_size=1, max_size=2),
    past=st.integers(0, 10),
    length=st.integers(1, 12),
    kept=st.integers(1, 12),
)
def test_edits_start_at_the_last_visual_column(columns, past, length, kept):
    kept = min(kept, length)
    logits = torch.zeros(len(columns), kept, 2)
    forward = ForwardPass(None, {}, past, length, 1, {}, logits, trail_of(*columns), None)
    absolute = range(past + length - kept, past + length)
    for row, own in enumerate(columns):
        expected = [bool(own) and column >= own[-1] for column in absolute]
        assert [at >= forward.start_of(row) for at in range(kept)] == expected


# --- what a pass shows ---


@pytest.mark.parametrize("family", FAMILIES)
def test_each_block_is_read_where_transformers_reports_it(case):
    """Layer l is ``hidden_states[l + 1]``; the last one before the norm; -1 is what enters the first block."""
    inputs = case.inputs()
    reported = twin.hidden_states(case.model, inputs)
    tap, watcher = tapped(case, layers=range(-1, 4))
    with tap, torch.no_grad():
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
    tap, watcher = tapped(case, layers=[1])
    with tap:
        generate(case, inputs, min_new_tokens=3)
    assert [(one["past"], one["length"]) for one in watcher.seen] == [
        (0, prompt),
        (prompt, 1),
        (prompt + 1, 1),
    ]
    assert {(one["start"], one["end"], one["repeat"]) for one in watcher.seen} == {(0, prompt, 1)}
    rows = layout(family_of(case.model.config), case.model.config, inputs["input_ids"], inputs)
    columns = [[column for column, _ in row] for row in rows]
    assert all(one["columns"] == columns for one in watcher.seen)
    assert watcher.seen[0]["trail"].patches == [[place for _, place in row] for row in rows]
    assert watcher.fresh == [columns, [], []]
    assert all(one["logits"].shape == (2, 1, 400) for one in watcher.seen)
    assert torch.equal(watcher.seen[0]["inputs"]["input_ids"], inputs["input_ids"])
    assert {id(one["trail"]) for one in watcher.seen} == {id(watcher.seen[0]["trail"])}


@pytest.mark.parametrize("family", FAMILIES)
def test_beams_share_the_trail_of_their_prompt(case):
    inputs = case.inputs([1, 2], ["What is in it?", "Describe."])
    tap, watcher = tapped(case)
    with tap:
        generate(case, inputs, num_beams=3)
    assert {one["repeat"] for one in watcher.seen} == {3}
    assert {len(one["columns"]) for one in watcher.seen} == {2}


@pytest.mark.parametrize("family", ["llava"])
def test_without_a_cache_the_image_is_fresh_once(case):
    tap, watcher = tapped(case)
    with tap:
        generate(case, case.inputs(), use_cache=False, min_new_tokens=3)
    assert [one["past"] for one in watcher.seen] == [0, 0, 0]
    assert [bool(fresh) for fresh in watcher.fresh] == [True, False, False]


@pytest.mark.parametrize("family", ["llava"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_a_branch_beside_the_prompt_has_a_trail_of_its_own(case, use_cache):
    """Guidance runs an image-free sequence between the passes of the prompt."""
    inputs = case.inputs()
    tap, watcher = tapped(case)
    with tap:
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
    tap, watcher = tapped(
        case, make=lambda logits: torch.zeros_like(logits).index_fill(-1, torch.tensor([before]), 9.0)
    )
    options = {"prompt_lookup_num_tokens": 2, "max_matching_ngram_size": 1, "max_new_tokens": 4}
    with tap:
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
    tap, watcher = tapped(case)
    with tap:
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
    tap, watcher = tapped(case)
    with tap, torch.no_grad():
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
    tap, _ = tapped(
        case, make=lambda logits: torch.full_like(logits, -1.0).index_fill(-1, torch.tensor([77]), 9.0)
    )
    with tap, torch.no_grad():
        assert generate(case, inputs)[0, -3:].tolist() == [77, 77, 77]
        assert case.model(**inputs).logits.max() == 9.0
    tap, _ = tapped(case)
    with torch.no_grad():
        base = case.model(**inputs).logits
        with tap:
            assert torch.equal(case.model(**inputs).logits, base)


@pytest.mark.parametrize("family", ["llava", "instructblip"])
def test_a_decoders_own_passes_are_not_shown(case):
    inputs = case.inputs()
    tap, watcher = tapped(case, layers=[0])
    with tap, torch.no_grad():
        with paused(case.model):
            case.model(**inputs)
            with paused(case.model):
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

    def engage(self, tap):
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
    tap = bold.attach(case.model, case.processor)
    with tap, torch.no_grad():
        assert bold.engaged == 1
        prompt = inputs["input_ids"].shape[1]
        output = case.model.generate(**inputs, do_sample=False, max_new_tokens=3)
        assert len(bold.coming) == len(bold.seen) == 3  # what the caller passes wins
        assert [(one.past, one.length, one.rows) for one in bold.coming] == [
            (one["past"], one["length"], 1) for one in bold.seen
        ]
        assert all(one.columns == bold.seen[0]["columns"] for one in bold.coming)
        bold.coming[0].columns[0].clear()  # a copy: the trail does not change
        assert bold.seen[0]["trail"].columns[0]
        assert case.model.generate(**inputs, do_sample=False).shape[1] == output.shape[1] - 1
        assert prompt
    assert bold.engaged == 0


@pytest.mark.parametrize("family", ["llava"])
def test_a_tap_that_cannot_be_installed_leaves_nothing(case):
    class Broken(Bold):
        def __init__(self, anatomy):
            super().__init__(anatomy)
            self.layers = frozenset({0, 99})

    broken = Broken(find_anatomy(case.model))
    before = dict(vars(case.model))
    counts = [len(part._forward_pre_hooks) + len(part._forward_hooks) for part in case.model.modules()]
    for _ in range(2):
        with pytest.raises(IndexError), broken.attach(case.model, None):
            pass
    assert broken.engaged == 0
    assert vars(case.model).keys() == before.keys()
    assert counts == [
        len(part._forward_pre_hooks) + len(part._forward_hooks) for part in case.model.modules()
    ]
    with tapped(case)[0]:
        pass


@pytest.mark.parametrize("family", ["llava"])
def test_several_streams_between_blocks_are_refused(case):
    """AltUp families hand a stack of streams from block to block."""
    tap, _ = tapped(case, layers=[1])
    block = twin.parts(case.model)[0].layers[2]
    hook = block.register_forward_pre_hook(lambda _, args: (torch.stack([args[0]] * 4), *args[1:]))
    try:
        with tap, torch.no_grad(), pytest.raises(UnsupportedError, match="block 1") as caught:
            case.model(**case.inputs())
    finally:
        hook.remove()
    assert "block" in caught.value.hint
