"""Open a benchmark by name: find its data and images, check its options."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reweigh.errors import InputError, UnknownNameError
from reweigh.lab.tasks.base import BENCHMARKS, Benchmark, find_benchmark
from reweigh.lab.tasks.coco import COCO_TRAIN2014
from reweigh.lab.tasks.data import Dataset, data_root, folder_of
from reweigh.lab.tasks.judge import Judge, JudgeSettings

NOT_OPTIONS = frozenset({"data_dir", "judge", "backend"})
"""Arguments of a benchmark that are not options: objects, and what a record keeps elsewhere."""


def open_benchmark(
    name: str,
    data: str | Path | None = None,
    *,
    judge: Judge | JudgeSettings | None = None,
    **options: Any,
) -> Benchmark:
    """Open a benchmark over its data.

    Args:
        name: Its registered name.
        data: Folder of its files; by default where ``reweigh data`` puts them.
        judge: Who rates the answers of a judged benchmark; needed for scoring only.
        options: Its own options.

    Examples:
        >>> open_benchmark("world", scenes=2).title
        'CHAIR on the embedded world'
    """
    benchmark = find_benchmark(name)
    parameters = inspect.signature(benchmark).parameters
    known = known_options(benchmark)
    if unknown := sorted(set(options) - set(known)):
        raise InputError(f"{name} has no option {unknown[0]!r}", hint=f"known: {', '.join(known) or 'none'}")
    arguments: dict[str, Any] = {}
    if judge is not None and benchmark.judged:
        arguments = judge.arguments() if isinstance(judge, JudgeSettings) else {"judge": judge}
    arguments |= {key: _read_option(parameters[key], value) for key, value in options.items()}
    make: Callable[..., Benchmark] = benchmark
    return make(data_folder(benchmark, data), **arguments)


def _read_option(parameter: inspect.Parameter, value: Any) -> Any:
    """Check an option's type; a number where text or a path belongs, such as ``year=2014``, becomes text."""
    default = parameter.default
    if isinstance(default, bool) and not isinstance(value, bool):
        raise InputError(f"the option {parameter.name} cannot be {value!r}", hint="give true or false")
    if type(default) is int and type(value) is not int:
        raise InputError(f"the option {parameter.name} cannot be {value!r}", hint="give a whole number")
    kinds = {kind.strip() for kind in str(parameter.annotation).split("|")}
    if (isinstance(default, str) or kinds & {"str", "Path"}) and not isinstance(value, str | Path | None):
        return json.dumps(value)
    return value


def known_options(benchmark: type[Benchmark]) -> list[str]:
    """List the options of a benchmark: the keywords of its constructor."""
    return [name for name in inspect.signature(benchmark).parameters if name not in NOT_OPTIONS]


def data_folder(benchmark: type[Benchmark], data: str | Path | None = None) -> Path:
    """Return the given folder, or the one where ``reweigh data`` puts the benchmark's files."""
    if data is not None:
        return Path(data)
    return data_root() / benchmark.name if benchmark.dataset is None else folder_of(benchmark.dataset)


def image_folder(benchmark: type[Benchmark], data: Path, images: str | Path | None = None) -> Path:
    """Return the given folder, or the one with the images: that of the data, or of the dataset of images."""
    if images is not None:
        if not Path(images).is_dir():
            raise InputError(
                f"{images} is not a folder",
                hint="name the folder of the images with --option images=DIR",
            )
        return Path(images)
    if benchmark.image_dataset is None:
        return data
    apart = folder_of(benchmark.image_dataset)
    with_data = any((data / name).is_dir() for name in benchmark.image_dataset.content)
    return apart if apart.is_dir() and not with_data else data


def datasets() -> dict[str, Dataset]:
    """Return all datasets by name: those of the benchmarks, and images for calibration."""
    found = {COCO_TRAIN2014.name: COCO_TRAIN2014}
    for name in BENCHMARKS:
        benchmark = find_benchmark(name)
        for entry in (benchmark.dataset, benchmark.image_dataset):
            if entry is not None:
                found.setdefault(entry.name, entry)
    return dict(sorted(found.items()))


def dataset(name: str) -> Dataset:
    """Find a dataset, suggesting near names."""
    known = datasets()
    if name not in known:
        raise UnknownNameError("dataset", name, known)
    return known[name]
