"""Every benchmark for developers at toy size: it runs, compares like with like, and reports whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from reweigh.errors import UnknownNameError
from reweigh.families.load import load
from reweigh.files.seals import read_sealed
from reweigh.method.edit import candidates
from reweigh.method.sums import ReadoutSums
from tools.bench import __main__ as command
from tools.bench import growth, kernels, step
from tools.bench.calibration import calibration_figures
from tools.bench.generation import Subject
from tools.bench.random_llava import random_llava
from tools.bench.timing import KEPT, Rounds

TOY = kernels.Shape("toy", 5, 90, 12, 8)


@pytest.fixture(scope="module")
def subject() -> Subject:
    return random_llava(4, width=32, blocks=4, mlp=48, vocab=200, side=4)


def test_an_unknown_shape_is_named() -> None:
    assert kernels.find_shapes([]) == list(kernels.SHAPES)
    with pytest.raises(UnknownNameError, match="did you mean llava"):
        kernels.find_shapes(["llava-15"])


def test_the_naive_argsort_is_the_mean_reciprocal_rank_where_nothing_ties() -> None:
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(1))
    exact = ReadoutSums(50)
    exact.add(logits)
    assert np.allclose(kernels.naive_argsort(logits), exact.evidence(), atol=1e-6)


def test_both_ways_of_a_step_give_the_same_logits() -> None:
    random = torch.Generator().manual_seed(2)
    logits, strengths = 3 * torch.randn(4, 300, generator=random), torch.rand(4, 300, generator=random)
    assert candidates(logits).keep.sum() > 8
    by_sorting = step.step_by_sorting(logits, strengths)
    assert torch.allclose(step.step_edit(logits.clone(), strengths), by_sorting, atol=1e-6)


def test_the_step_is_measured_for_each_batch() -> None:
    figures = list(step.step_figures([TOY], Rounds(1), batches=(1, 3)))
    assert [figure.case.split()[-1] for figure in figures] == ["1"] * 3 + ["3"] * 3
    assert {figure.variant for figure in figures} == {"head's product", "edit", "edit by a full sort"}


def test_growth_is_per_unit_of_size(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "POSITIONS", (1, 2))
    monkeypatch.setattr(growth, "VOCABULARIES", (50, 100))
    monkeypatch.setattr(growth, "BATCHES", (1,))
    monkeypatch.setattr(growth, "LENGTHS", (2,))
    cases = [figure.case for figure in growth.growth_figures(Rounds(1), subject)]
    assert [case.split(",")[0] for case in cases] == ["positions"] * 2 + ["vocabulary"] * 2 + [
        "batch",
        "length",
    ]


def test_calibration_is_timed_by_batch(checkpoint: Callable[..., Path]) -> None:
    model, processor = load(checkpoint("llava"), device="cpu")
    picture = Image.new("RGB", (20, 20), "red")
    figures = list(
        calibration_figures(
            model, processor, [("a", picture), ("b", picture)], Rounds(1), batches=(1, 2), max_new_tokens=8
        )
    )
    assert [one.variant for one in figures] == ["batch 1", "batch 2"]
    assert figures[0].ratio is None
    assert figures[1].against == "batch 1"


def test_the_command_prints_writes_and_speaks_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "SHAPES", (TOY,))
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)
    runner = CliRunner()
    told = runner.invoke(command.app, ["kernels", "step", "-r", "1", "--json", "-o", str(tmp_path)])
    assert told.exit_code == 0, told.output
    report = json.loads(told.stdout)
    assert report == read_sealed(tmp_path / "speed.json")
    figures = report["figures"]
    assert {one["part"] for one in figures} == {"kernels", "gain", "step"}
    names = [one["variant"] for one in figures if one["part"] == "kernels"]
    assert names[0] == "head's product"
    assert {"float32, numpy", "bfloat16, numpy", "float32, naive argsort"} <= set(names)
    assert all(one["ratio"] is not None for one in figures[1 : len(names)])
    assert (tmp_path / "speed.html").exists()
    written = (tmp_path / "speed.md").read_text()
    assert "head's product" in written
    assert "| versions | reweigh " in written
    shown = runner.invoke(command.app, ["step", "-r", "1"])
    assert shown.exit_code == 0
    assert "us per step" in shown.stdout


def test_a_stopped_command_reports_what_it_has_and_resumes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SHAPES", (TOY,))
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)
    runner = CliRunner()
    asked = ["kernels", "step", "-r", "1", "-o", str(tmp_path)]
    edit = step.step_edit

    def interrupt(*_given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(step, "step_edit", interrupt)
    stopped = runner.invoke(command.app, asked)
    assert stopped.exit_code == 130
    assert "resume" in stopped.stderr
    assert "kernels: toy" in stopped.stdout
    before = json.loads((tmp_path / "speed.json").read_text())["figures"]
    assert {one["part"] for one in before} == {"kernels", "gain"}
    monkeypatch.setattr(step, "step_edit", edit)
    ended = runner.invoke(command.app, [*asked, "--json"])
    assert ended.exit_code == 0, ended.output
    after = json.loads(ended.stdout)["figures"]
    assert [one["cost"] for one in after[: len(before)]] == [one["cost"] for one in before]
    assert {one["part"] for one in after} == {"kernels", "gain", "step"}
    kept = [json.loads(line) for line in (tmp_path / KEPT).read_text().splitlines()]
    assert len({(row["of"]["what"], row["variant"]) for row in kept}) == len(kept)


def test_a_stopped_command_without_a_folder_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "SHAPES", (TOY,))
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)
    monkeypatch.setattr(kernels, "naive_argsort", lambda _logits: (_ for _ in ()).throw(KeyboardInterrupt()))
    stopped = CliRunner().invoke(command.app, ["kernels", "-r", "1", "--json"])
    assert stopped.exit_code == 130
    assert json.loads(stopped.stdout)["figures"] == []
    assert "--out" in stopped.stderr
