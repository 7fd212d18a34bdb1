"""Arms decoded on a random model: edits against a twin written from the definition, counts, and resumption."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import reweigh
import twin
from checkpoints import VOCABULARY
from reweigh.engines.reader import Reader
from reweigh.engines.transformers.answers import end_tokens
from reweigh.families.prompts import build_inputs
from reweigh.files.artifacts import read_jsonl
from reweigh.lab.arms.ablate.arms import Variant
from reweigh.lab.arms.ablate.report import COUNTED
from reweigh.lab.arms.ablate.run import (
    Tally,
    attach_variant,
    evidence_for,
    sum_edits,
    variant_arm,
)
from reweigh.lab.study import Study, open_batch
from reweigh.method.edit import Candidates
from reweigh.method.trace import Recorded

BETA = 4.0
ARMS = [
    "full",
    "global",
    "shuffled-0",
    "shuffled-1",
    "mismatched",
    "cyclic",
    "blind",
    "no-abstention",
    "bidirectional",
    "unbounded",
    "relative",
]


def twin_strengths(name, table, dmrr):
    """s(v) of every token as the arm defines it, from the full table and one image's evidence."""
    found = np.zeros(VOCABULARY)
    references = {int(v): float(b) for v, b in zip(table.tokens, table.references, strict=True)}
    if name.startswith("shuffled"):
        drawn = np.random.default_rng(int(name[-1])).permutation(len(table.tokens))
        moved = table.references[drawn]
        references = {int(v): float(b) for v, b in zip(table.tokens, moved, strict=True)}
    for token in range(VOCABULARY):
        reference = references.get(token)
        if name == "global" and reference is not None:
            reference = table.b0
        if name == "no-abstention" and reference is None:
            reference = table.b0
        if reference is None:
            continue
        scale = reference if name == "relative" else table.b0
        raw = (reference - (0.0 if name == "blind" else dmrr[token])) / scale
        if name != "bidirectional":
            raw = max(raw, 0.0)
        if name != "unbounded":
            raw = min(raw, 1.0)
        found[token] = raw
    return found


class Keeper:
    def __init__(self):
        self.steps = []

    def record(self, recorded):
        self.steps.append(recorded)


@pytest.mark.parametrize("name", ARMS)
def test_an_arms_edits_are_those_of_its_definition(setting, name):
    arm, records = setting.arms[name], setting.runs.task.records
    session = attach_variant(setting.model, setting.processor, arm, BETA)
    measured = setting.evidence()
    number = 1
    donor = number if arm.donors is None else arm.donors[number]
    assert (donor != number) == (name in ("mismatched", "cyclic"))
    batch = records[2 * (donor // 2) : 2 * (donor // 2) + 2]
    inputs = build_inputs(
        setting.model, setting.processor, setting.pictures(batch), [one.prompt for one in batch]
    )
    dmrr = twin.evidence(setting.model, inputs, setting.table.layer)[donor % 2]
    expected = twin_strengths(name, setting.table, dmrr)
    keeper = Keeper()
    given = evidence_for(arm, session, measured.of, number)
    with session.using(evidence=[given], observer=keeper):
        session.describe(setting.pictures([records[number]]), records[number].prompt, max_new_tokens=4)
    assert keeper.steps
    for step in keeper.steps:
        chosen = step.candidates
        for ids, keep, shift in zip(chosen.ids, chosen.keep, step.shifts, strict=True):
            wanted = np.where(keep.numpy(), BETA * expected[ids.numpy()], 0.0)
            np.testing.assert_allclose(shift.numpy(), wanted, rtol=2e-4, atol=2e-4)


def test_the_full_arm_speaks_as_the_method_does(setting, tmp_path):
    arm, runs = setting.arms["full"], setting.runs
    session = attach_variant(setting.model, setting.processor, arm, BETA)
    answer(runs, session, arm, setting.evidence(), tmp_path)
    plain = reweigh.attach(setting.model, setting.processor, table=setting.table, beta=BETA)
    expected = []
    for start in range(0, 5, 2):
        batch = runs.task.records[start : start + 2]
        prompts = [one.prompt for one in batch]
        expected += plain.describe(setting.pictures(batch), prompts, max_new_tokens=7)
    assert [row["response"] for row in read_jsonl(tmp_path / "rows.jsonl")] == expected
    base = attach_variant(setting.model, setting.processor, arm, 0.0)
    texts = base.describe(setting.pictures(runs.task.records[:2]), prompts[0], max_new_tokens=7)
    assert texts != expected[:2], "the edit changes something here"


def test_evidence_is_read_once_for_all_arms(setting, tmp_path, monkeypatch):
    measured, read = setting.evidence(), []
    original = Reader.read
    monkeypatch.setattr(Reader, "read", lambda self, states: read.append(1) or original(self, states))
    for again in range(2):
        for name in ("full", "cyclic", "no-abstention", "unbounded"):
            arm, folder = setting.arms[name], tmp_path / f"{name}-{again}"
            session = attach_variant(setting.model, setting.processor, arm, BETA)
            answer(setting.runs, session, arm, measured, folder)
    assert len(read) == len(setting.runs.task.records)


@pytest.mark.parametrize(("name", "donors"), [("full", [0, 1, 2, 3, 4]), ("cyclic", [1, 2, 3, 4, 0])])
def test_each_row_of_a_batch_has_the_evidence_of_its_own_donor(setting, tmp_path, monkeypatch, name, donors):
    arm, measured = setting.arms[name], setting.evidence()
    session = attach_variant(setting.model, setting.processor, arm, BETA)
    served, run = [], session.decoder.run

    def watched(*, evidence=None, **options):
        served.extend(evidence or [])
        return run(evidence=evidence, **options)

    monkeypatch.setattr(session.decoder, "run", watched)
    answer(setting.runs, session, arm, measured, tmp_path)
    assert len(served) == 5
    for evidence, donor in zip(served, donors, strict=True):
        assert torch.equal(evidence.values, measured.of(donor).values)
        assert not torch.equal(evidence.values, measured.of((donor + 1) % 5).values)


def answer(runs, session, arm, evidence, folder):
    """Answer all records as an arm into a folder; return the notes on its batches."""
    made = variant_arm(arm, lambda _: session, evidence.of)
    study = Study([runs], [made], folder, flat=True)
    study.answer(runs, study.arms)
    return study.notes(runs, made)


def recorded(shift, keep, after):
    shift, keep = torch.tensor(shift), torch.tensor(keep).bool()
    chosen = Candidates(torch.zeros(shift.shape, dtype=torch.int64), keep, shift, torch.ones(len(shift)) > 0)
    nothing = torch.zeros(len(shift), 1)
    after = torch.tensor(after)
    return Recorded(chosen, shift, nothing, nothing, after, after)


def twin_counts(steps, bound, ends):
    """What is counted, by loops over (step, row, candidate)."""
    found = dict.fromkeys(COUNTED, 0)
    ended = set()
    for shift, keep, after in steps:
        for row, (penalties, kept) in enumerate(zip(shift, keep, strict=True)):
            if row in ended:
                continue
            own = [penalty for penalty, one in zip(penalties, kept, strict=True) if one]
            edits, escapes = sum(one != 0 for one in own), sum(one > bound for one in own)
            found["candidates"] += len(own)
            found["edits"] += edits
            found["escapes"] += escapes
            found["steps"] += 1
            found["edited_steps"] += edits > 0
            found["escaped_steps"] += escapes > 0
        ended |= {row for row, token in enumerate(after) if token in ends}
    return found


@pytest.mark.parametrize("seed", range(5))
def test_edits_are_counted_by_candidate_and_by_step_until_a_rows_end(seed):
    rng = np.random.default_rng(seed)
    steps = [
        (
            rng.choice([-2.0, 0.0, 0.0, 0.5, 1.1, 3.0], (3, 4)).tolist(),
            rng.integers(0, 2, (3, 4)).tolist(),
            rng.integers(5, 10, 3).tolist(),
        )
        for _ in range(12)
    ]
    tally = Tally(1.1, [9])
    for shift, keep, after in steps:
        tally.record(recorded(shift, keep, after))
    assert tally.counts == twin_counts(steps, 1.1, {9})


def test_raising_a_logit_is_an_edit_but_no_escape():
    tally = Tally(1.1, [9])
    tally.record(recorded([[-3.0, 0.0], [0.0, 0.0]], [[1, 1], [1, 1]], [4, 4]))
    assert tally.counts == dict(zip(COUNTED, (4, 1, 0, 2, 1, 0), strict=True))


@pytest.mark.parametrize(("given", "ends"), [(None, []), (2, [2]), ([2, 5], [2, 5])])
def test_end_tokens(given, ends):
    assert end_tokens(SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=given))) == ends


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8])
def test_a_stopped_arm_ends_with_the_same_bytes_and_counts(setting, tmp_path, share):
    arm = setting.arms["unbounded"]
    session = attach_variant(setting.model, setting.processor, arm, BETA)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    expected = answer(setting.runs, session, arm, setting.evidence(), whole)
    answer(setting.runs, session, arm, setting.evidence(), cut)
    path = cut / "rows.jsonl"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    (cut / "manifest.json").unlink()
    assert answer(setting.runs, session, arm, setting.evidence(), cut) == expected
    assert path.read_bytes() == (whole / "rows.jsonl").read_bytes()
    counts = sum_edits(expected)
    assert counts["escapes"] > 0
    assert counts["candidates"] >= counts["edits"] >= counts["escapes"]


def test_a_row_ends_where_the_part_that_generates_ends_it(setting, checkpoint, tmp_path, monkeypatch):
    # InstructBLIP hands `generate` on to its language model, whose settings decide.
    case = twin.case(checkpoint("instructblip"))
    arm = setting.arms["blind"]
    session = attach_variant(case.model, case.processor, arm, BETA, force=True)
    speaker = session.decoder.anatomy.language_model
    assert speaker is not case.model
    monkeypatch.setattr(case.model.generation_config, "eos_token_id", 301)
    monkeypatch.setattr(speaker.generation_config, "eos_token_id", 302)
    ends = []
    monkeypatch.setattr(
        "reweigh.lab.arms.ablate.run.Tally", lambda beta, given: ends.extend(given) or Tally(beta, given)
    )
    batch = open_batch(0, setting.runs.task.records[:1], setting.runs.task.images, seed=1)
    variant_arm(arm, lambda _: session, setting.evidence().of).opened(None).ask(batch)
    assert ends == [302]


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_a_readout_arm_edits_by_its_own_evidence_table_and_budget(setting, factor):
    first = setting.runs.task.records[:2]
    prompts = [one.prompt for one in first]
    inputs = build_inputs(setting.model, setting.processor, setting.pictures(first), prompts)
    z = twin.lens(setting.model, inputs, setting.table.layer)[0].double().numpy()
    evidence = ((z - z.mean(1, keepdims=True)) / z.std(1, keepdims=True)).mean(axis=0)
    random = np.random.default_rng(4)
    tokens = np.flatnonzero(random.random(VOCABULARY) < 0.7)
    references = evidence[tokens] + random.normal(0, 0.5, len(tokens))
    columns = {"tokens": tokens, "references": references, "counts": np.full(len(tokens), 9), "b0": 0.6}
    table = replace(setting.table, **columns, about={**setting.table.about, "readout": "zscore"})
    arm = Variant("zscore", table, factor=factor)
    session = attach_variant(setting.model, setting.processor, arm, BETA)
    given = setting.evidence().of(0, arm.table.readout)
    np.testing.assert_allclose(given.at(table.layer).numpy(), evidence, rtol=1e-3, atol=1e-4)
    keeper = Keeper()
    with session.using(evidence=[given], observer=keeper):
        session.describe(setting.pictures(first[:1]), prompts[0], max_new_tokens=4)
    expected = np.zeros(VOCABULARY)
    expected[tokens] = np.clip((references - evidence[tokens]) / 0.6, 0, 1)
    shifts = []
    for step in keeper.steps:
        chosen = step.candidates
        wanted = np.where(chosen.keep[0].numpy(), factor * BETA * expected[chosen.ids[0].numpy()], 0.0)
        np.testing.assert_allclose(step.shifts[0].numpy(), wanted, atol=5e-3)
        shifts += step.shifts[0].tolist()
    assert max(shifts) > 0.1
