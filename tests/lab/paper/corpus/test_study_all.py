"""All studies on a random model: each computes or says why not, and a second try, or one after a kill, ends the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reweigh.lab.paper.analyses import STUDIES
from reweigh.lab.paper.folder import finished, run_studies, write_report
from reweigh.lab.paper.material import Material
from reweigh.lab.read import STUDY
from reweigh.lab.runs.model import describe_model
from reweigh.lab.runs.task import Runs
from reweigh.method.references import AtLeast
from reweigh.tables.table import ReferenceTable

NEED_MORE = {"scale", "rescaling", "tokens", "references"}
"""Tested in files of their own."""


def material(passing: Any, corpus: Any, folder: Path) -> Material:
    observations = corpus.observations()
    about = {
        **passing.table.about,
        "rule": "count-1",
        "images": len(observations.images),
        "corpus": observations.corpus,
    }
    found = observations.register(corpus.layer, rule=AtLeast(1))
    table = ReferenceTable.build(corpus.layer, found, about)
    runs = Runs(passing.task, {"id": "made", **describe_model(passing.model, passing.processor)}, 2)
    loaded = passing.model, passing.processor
    return Material(lambda: corpus, corpus, table, 9.0, loaded, runs, folder, force=True, resamples=20)


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "record.json"
    }


def test_pieces_name_the_vocabulary(passing: Any, corpus: Any, tmp_path: Path) -> None:
    made = material(passing, corpus, tmp_path)
    pieces, special = made.pieces()
    assert len(pieces) == corpus.vocab_size
    tokenizer = passing.processor.tokenizer
    token = tokenizer.convert_tokens_to_ids(str(pieces[10]))
    assert token == 10
    assert tokenizer.eos_token_id in special


@pytest.mark.slow
def test_every_study_ends_and_ends_the_same(
    passing: Any, corpus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reweigh.lab.paper.study.LEAST_IMAGES", 1)
    names = [name for name in STUDIES if name not in NEED_MORE]
    first, second = tmp_path / "first", tmp_path / "second"
    outcomes = run_studies(names, material(passing, corpus, first), first)
    told = {one.study.name: one.unmet for one in outcomes}
    assert {name for name, reason in told.items() if reason is None} >= {
        "sizes",
        "rules",
        "specificity",
        "scaling",
        "cost",
    }
    assert all(outcome.sentences for outcome in outcomes)

    half = names[: len(names) // 2]
    run_studies(half, material(passing, corpus, second), second)
    (second / half[-1] / STUDY).unlink()  # as a kill between a study's files and its page leaves it
    (second / half[-2] / "table.csv").unlink()
    made = material(passing, corpus, second)
    run_studies(names, made, second)
    for folder in (first, second):
        write_report(folder, finished(made, folder), made.record())
    assert files(first) == files(second)
