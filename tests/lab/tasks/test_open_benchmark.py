"""Opening benchmarks by name: folders, options, judges, and what every built-in declares of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reweigh.errors import InputError
from reweigh.lab.tasks import BENCHMARKS, MetricInfo, find_benchmark, open_benchmark
from reweigh.lab.tasks.base import find_metric
from reweigh.lab.tasks.data import folder_of
from reweigh.lab.tasks.judge import CachedJudge, JudgeSettings
from reweigh.lab.tasks.open import data_folder, dataset, image_folder

JUDGED = ("mmhal", "mmvet")
BUILT_IN = ("chair", "amber-generative", "amber-discriminative", "pope", "world", *JUDGED)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REWEIGH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    return tmp_path / "data"


def test_data_lie_where_the_dataset_is_put(root: Path, tmp_path: Path) -> None:
    assert open_benchmark("amber-generative").data_dir == root / "amber"
    assert open_benchmark("mmhal").data_dir == root / "mmhal"
    assert open_benchmark("world").data_dir == root / "world"
    assert open_benchmark("pope", tmp_path, parser="opera").data_dir == tmp_path
    with pytest.raises(InputError, match="parsers"):
        open_benchmark("pope", parsers="opera")


def test_options_are_read_as_their_types() -> None:
    """A command parses values as JSON: a year and a folder called 5 come as numbers."""
    assert open_benchmark("chair", year=2014).year == "2014"  # type: ignore[attr-defined]
    assert open_benchmark("pope", repope=5).repope == Path("5")  # type: ignore[attr-defined]
    assert open_benchmark("objects", images=Path("a"), truth=7).own_images == Path("a")
    for name, option, value in (
        ("chair", "images", "many"),
        ("chair", "images", 0),
        ("chair", "images", True),
        ("chair", "backend", "mine"),
        ("amber-generative", "mixed", 1),
        ("mmvet", "runs", 1.5),
        ("world", "split", 3),
    ):
        with pytest.raises(InputError):
            open_benchmark(name, **{option: value}).records()


def test_images_lie_apart_unless_they_are_with_the_data(root: Path, tmp_path: Path) -> None:
    for name in ("chair", "pope"):
        assert image_folder(find_benchmark(name), root / name) == root / name
    (root / "coco").mkdir(parents=True)
    for name in ("chair", "pope"):
        assert image_folder(find_benchmark(name), root / name) == root / "coco"
    assert image_folder(find_benchmark("mmvet"), root / "mmvet") == root / "mmvet"
    (root / "chair" / "val2014").mkdir(parents=True)
    assert image_folder(find_benchmark("chair"), root / "chair") == root / "chair"
    assert image_folder(find_benchmark("chair"), root / "chair", tmp_path) == tmp_path
    with pytest.raises(InputError, match="folder"):
        image_folder(find_benchmark("chair"), root / "chair", tmp_path / "gone")
    assert data_folder(find_benchmark("amber-discriminative")) == root / "amber"


def test_everything_of_coco_lies_in_one_folder(root: Path) -> None:
    assert data_folder(find_benchmark("chair")) == root / "coco"
    assert {folder_of(dataset(name)) for name in ("chair", "coco-val2014", "coco-train2014")} == {
        root / "coco"
    }


def test_a_judge_goes_to_benchmarks_that_are_judged(root: Path) -> None:
    pytest.importorskip("openai", reason="needs the extra 'eval'")
    settings = JudgeSettings(rules="official", concurrency=3)
    bench: Any = open_benchmark("mmvet", judge=settings, runs=2)
    assert isinstance(bench.judge, CachedJudge)
    bench.judge.close()
    assert (bench.rules, bench.concurrency, bench.runs) == ("official", 3, 2)
    own: Any = open_benchmark("mmhal", judge=bench.judge)
    assert own.judge is bench.judge
    assert own.rules == "strict"
    assert not hasattr(open_benchmark("pope", judge=settings), "judge")
    assert tuple(name for name in BUILT_IN if find_benchmark(name).judged) == JUDGED


class Counts(dict[str, Any]):
    """Sums that are one wherever a scorer looks."""

    def __missing__(self, name: str) -> Any:
        return np.ones(1)


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_figure_is_declared(name: str) -> None:
    benchmark = find_benchmark(name)
    extra = {"n:rec": np.ones(1), "n=rec+ocr": np.ones(1), "score@0": np.ones(1)} if name == "mmvet" else {}
    names = list(benchmark.figures(Counts(extra)))
    assert benchmark.title
    assert benchmark.headlines(names)
    assert len(set(benchmark.headlines(names))) == sum(info.headline for info in benchmark.metrics)
    undeclared = [one for one in names if find_metric(benchmark.metrics, one) == MetricInfo(one, unit="")]
    assert set(undeclared) <= {"mentions"}  # which is declared as just that
    assert set(BUILT_IN) <= set(BENCHMARKS)


def test_a_breakdown_is_read_as_its_metric() -> None:
    metrics = [
        MetricInfo("score", "higher", unit="", digits=2, headline=True),
        MetricInfo("f1", "higher", title="F1"),
        MetricInfo("set_f1", "lower"),
    ]
    assert find_metric(metrics, "score_attribute") == MetricInfo(
        "score_attribute", "higher", unit="", digits=2
    )
    assert find_metric(metrics, "score_attribute").title == "score attribute"
    assert find_metric(metrics, "relation_f1").direction == "higher"
    assert find_metric(metrics, "relation_set_f1").direction == "lower"  # the longest name wins
    assert find_metric(metrics, "f1").title == "F1"
    assert find_metric(metrics, "scores") == MetricInfo("scores", unit="")
    with pytest.raises(InputError, match="'up'"):
        MetricInfo("x", "up")  # type: ignore[arg-type]


def test_records_for_choices_are_apart() -> None:
    world = open_benchmark("world", **find_benchmark("world").tuning_options)
    assert (world.split, world.count) == ("tuning", 300)  # type: ignore[attr-defined]
    assert find_benchmark("chair").tuning_options == {"split": "train"}


def test_coco_images_are_found_by_their_number() -> None:
    assert find_benchmark("chair").image_names(42)[0] == "COCO_val2014_000000000042.jpg"
    assert find_benchmark("pope").image_names("a.jpg") == ["a.jpg"]
