"""End-to-end runs of studies: base answers are the corpus's, kept evidence edits as measured evidence does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reweigh.attached import attach
from reweigh.engines.base import GREEDY
from reweigh.errors import MismatchError
from reweigh.images import read_image
from reweigh.job import ROWS
from reweigh.lab.arms.ablate import run as ablation
from reweigh.lab.arms.ablate.arms import Variant
from reweigh.lab.paper import material as reading
from reweigh.lab.paper.material import Material
from reweigh.lab.runs.model import describe_model
from reweigh.lab.runs.task import Runs

BETA = 9.0


@pytest.fixture
def material(passing: Any, corpus: Any, tmp_path: Path) -> Material:
    runs = Runs(passing.task, {"id": "made", **describe_model(passing.model, passing.processor)}, 2)
    loaded = passing.model, passing.processor
    return Material(lambda: corpus, corpus, passing.table, BETA, loaded, runs, tmp_path / "study", force=True)


def texts(material: Any, name: str) -> list[str]:
    lines = (material.run_folder(name) / ROWS).read_text().splitlines()
    return [json.loads(line)["response"] for line in lines]


def test_base_answers_are_the_corpus_s_and_need_no_model(material: Any, corpus: Any) -> None:
    replace(material, loaded=()).base()
    assert texts(material, "base") == [image.text for image in corpus]


def test_kept_evidence_gives_the_answers_of_measured_evidence(material: Any, passing: Any) -> None:
    material.rank()
    session = attach(passing.model, passing.processor, table=passing.table, beta=BETA, force=True)
    expected = []
    records = passing.task.records
    for start in range(0, len(records), 2):
        batch = records[start : start + 2]
        pictures = [read_image(passing.task.images / record.image) for record in batch]
        options = {**GREEDY, "max_new_tokens": batch[0].max_new_tokens}
        expected += [
            one.text for one in session.answer(pictures, [record.prompt for record in batch], **options)
        ]
    assert texts(material, "rank") == expected
    assert texts(material, "rank") != [image.text for image in material.evaluation]  # the edit does something


def test_a_finished_run_is_scored_not_answered_again(material: Any) -> None:
    first = material.rank()
    before = (material.run_folder("rank") / ROWS).read_bytes()
    assert material.rank().summary.metrics == first.summary.metrics
    assert (material.run_folder("rank") / ROWS).read_bytes() == before


def test_donors_and_blindness_change_whose_evidence_is_given(
    material: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    wrap = ablation.as_evidence
    for module in (ablation, reading):
        monkeypatch.setattr(
            module, "as_evidence", lambda vector, *more: given.append(vector.numpy()) or wrap(vector, *more)
        )
    count = len(material.evaluation)
    own = [image.evidence["dmrr"] for image in material.evaluation]
    material.run(Variant("shifted", material.table, donors=[*range(1, count), 0]))
    assert all((one == other).all() for one, other in zip(given, [*own[1:], own[0]], strict=True))
    given.clear()
    material.run(Variant("blind", material.table, blind=True))
    assert len(given) == count
    assert not any(one.any() for one in given)


def test_a_run_of_the_same_name_with_another_table_is_not_mistaken_for_the_first(material: Any) -> None:
    material.run(Variant("one", material.table))
    other = replace(material.table, references=material.table.references * 0.5)
    with pytest.raises(MismatchError, match="table"):
        material.run(Variant("one", other))
    assert material.run(Variant("two", other)) is not material.run(Variant("one", material.table))
