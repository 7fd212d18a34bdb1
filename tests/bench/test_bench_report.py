"""Every part of the speed measurement at toy size: that it runs, compares like with like, and reports whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import reweigh
from reweigh.errors import UnknownNameError
from reweigh.lab.estimate import Estimate
from tools.bench import generation, kernels
from tools.bench.generation import Subject
from tools.bench.random_llava import random_llava
from tools.bench.report import Measurement, build_report, case_table, machine, peak_mib
from tools.bench.timing import Rounds

TOY = kernels.Shape("toy", 5, 90, 12, 8)


@pytest.fixture(scope="module")
def subject() -> Subject:
    return random_llava(4, width=32, blocks=4, mlp=48, vocab=200, side=4)


def test_cached_and_online_evidence_write_the_same_text(subject: Subject) -> None:
    online = generation.generate(subject, subject.reweigh, 4)
    first = generation.generate(subject, subject.reweigh.using(evidence=subject.evidence), 4)
    again = generation.generate(subject, subject.reweigh.using(evidence=subject.evidence), 4)
    assert torch.equal(online, first)
    assert torch.equal(online, again)
    assert online.shape[1] == subject.inputs["input_ids"].shape[1] + 4


def test_a_cached_generation_reads_nothing(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence = subject.evidence

    def refuse(*_args: object) -> None:
        raise AssertionError("the head was read again")

    monkeypatch.setattr("reweigh.engines.reader.Reader.read", refuse)
    generation.generate(subject, subject.reweigh.using(evidence=evidence), 4)
    with pytest.raises(AssertionError, match="again"):
        generation.generate(subject, subject.reweigh, 4)


def test_generation_is_compared_with_greedy_and_rivals(subject: Subject) -> None:
    figures = list(generation.generation_figures(subject, Rounds(5), ["vcd"]))
    assert [figure.variant for figure in figures] == [
        "greedy",
        "cached evidence",
        "online evidence",
        "rival: vcd",
        "cached evidence, by its own clock",
        "online evidence, by its own clock",
        "head's product",
        "evidence",
    ]
    assert "16 visual, 4 new tokens" in figures[0].case
    cached, online = (one for one in figures if one.part == "share")
    assert cached.cost.value < online.cost.value
    assert online.ratio is not None
    assert online.ratio.value > 1
    assert "ReWEIGH adds" in generation.in_a_sentence(figures)
    assert "reweigh" not in generation.rivals()
    assert "vcd" in generation.rivals()


NEED_MORE = {"asd", "code", "halc", "nullu", "projectaway", "vti"}
"""Rivals that need options of their own, whole pictures or written words, which a random model has not."""


def test_every_rival_runs_on_the_random_model_and_one_that_cannot_is_named(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    figures = list(generation.generation_figures(subject, Rounds(1), generation.rivals(), told.append))
    ran = [one.variant.removeprefix("rival: ") for one in figures if one.variant.startswith("rival")]
    left_out = [name for name in generation.rivals() if name not in ran]
    assert set(left_out) <= NEED_MORE
    assert [note.split(" is left out")[0].removeprefix("rival: ") for note in told] == left_out
    told.clear()
    bare = replace(subject, processor=None)
    names = [one.variant for one in generation.generation_figures(bare, Rounds(1), ["icd"], told.append)]
    assert "rival: icd" not in names
    assert "icd is left out on random LLaVA: ICD writes words" in told[0]


def test_rivals_are_found_by_name() -> None:
    assert generation.find_rivals(["all"]) == generation.rivals()
    assert generation.find_rivals([]) == []
    assert generation.find_rivals(["vcd"]) == ["vcd"]
    for wrong in (["vdc"], ["all", "vcd"], ["greedy"]):
        with pytest.raises(UnknownNameError, match="rival"):
            generation.find_rivals(wrong)


def figure(ratio: float, goal: float | None) -> Measurement:
    estimate = Estimate(ratio, ratio, ratio)
    return Measurement(
        "kernels", "toy V=9", "all", estimate, "ns per logit", estimate, "head's product", goal, 3.0
    )


def test_a_page_of_figures() -> None:
    page = [figure(0.05, 0.1), figure(0.2, 0.1), figure(0.3, None)]
    assert [one.within_goal for one in page] == [True, False, None]
    text = case_table(page).markdown()
    assert "≤ 0.1 met" in text
    assert "≤ 0.1 missed" in text


def test_a_report_is_written_and_read_again(tmp_path: Path) -> None:
    page = [
        figure(0.05, 0.1),
        replace(figure(0.2, 0.1), variant="some"),
        replace(figure(2.0, None), case="V=2"),
    ]
    report = build_report(machine(), 3, page)
    written = {path.name for path in report.write(tmp_path)}
    assert written == {"speed.md", "speed.html", "speed.json", "frame.json"}
    text = (tmp_path / "speed.md").read_text()
    assert "## kernels: toy V=9" in text
    assert "| processor |" in text
    assert (tmp_path / "speed.html").read_text().count('role="img"') == 4, "two cases, wide and narrow"
    frame = reweigh.read(tmp_path)
    assert frame.one(case="V=2", figure="x head's product").value == 2.0
    assert frame.one(variant="some", figure="peak MiB").value == 3.0


def test_the_machine_is_described() -> None:
    found = machine()
    assert found["cores"] >= 1
    assert found["kernel"] in ("numba", "numpy", "torch")
    assert "torch" in found["versions"]
    for _ in range(2):  # what the first run freed does not hide what the second needs
        taken = peak_mib(lambda: [np.ones(2_000) for _ in range(8_000)])
        assert taken is None or 90 < taken < 200
