"""How commands name a benchmark: its options, its files, its images and its judge."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.errors import InputError

if TYPE_CHECKING:
    from reweigh.benchmarks.base import Benchmark, Id
    from reweigh.runs.task import Runs, Task

DATASETS = {"amber-generative": "amber", "amber-discriminative": "amber"}
"""Benchmarks whose files carry another name in `reweigh data`."""

DATA = typer.Option(
    None, help="Folder of the benchmark's files; by default where `reweigh data get` puts them."
)
IMAGES = typer.Option(None, help="Folder of the images, if they lie elsewhere.")
OPTION = typer.Option(
    [], "--option", "-o", help="An option of the benchmark, as name=value; may be repeated."
)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Which records of a benchmark are asked, and how; a group of options."""

    data: Path | None = DATA
    images: Path | None = IMAGES
    option: list[str] = OPTION
    limit: int | None = typer.Option(None, min=1, help="Only the first records.")
    batch_size: int = typer.Option(1, min=1, help="Images answered at once; the paper uses 1.")
    seed: int = typer.Option(42, help="Seed of the sample of images and of anything drawn.")
    template: str | None = common.TEMPLATE

    def task(
        self, name: str, *, beside: Path | None = None, preset: list[str] | None = None, shard: str = "1/1"
    ) -> Task:
        """Open a benchmark and list its records.

        Args:
            name: The benchmark.
            beside: Where the embedded world's pictures go if no folder of data was named.
            preset: Options that hold unless the user gives others.
            shard: Part of the records, as i/n.
        """
        from reweigh.runs.record import Shard
        from reweigh.runs.task import Task

        folder = beside if name == "world" and self.data is None else self.data
        bench, options, place = open_benchmark(name, folder, [*(preset or []), *self.option])
        pictures = image_folder(name, place, self.images)
        return Task(
            bench,
            Shard.parse(shard).of(bench.records(limit=self.limit, seed=self.seed)),
            pictures,
            {"name": name, "options": options, "limit": self.limit, "shard": shard},
            {"data": str(place.resolve()), "images": str(pictures.resolve())},
        )

    def runs(self, task: Task, name: str, weights: common.Weights, loaded: tuple[Any, Any]) -> Runs:
        """How runs of a loaded model are asked and recorded."""
        from reweigh.runs.model import describe_model
        from reweigh.runs.task import Runs

        told = {"id": name, "revision": weights.revision, "dtype": weights.dtype} | describe_model(*loaded)
        return Runs(task, told, self.batch_size, self.seed, self.template)


def open_benchmark(
    name: str,
    data: Path | None,
    option: list[str],
    *,
    kept: dict[str, Any] | None = None,
    judge: dict[str, Any] | None = None,
) -> tuple[Benchmark, dict[str, Any], Path]:
    """Make a benchmark over its data; gives the options that belong to the record, too."""
    import inspect

    from reweigh.benchmarks.base import BENCHMARKS

    made: Callable[..., Benchmark] = BENCHMARKS[name]
    options = {**(kept or {}), **option_values(option)}
    known = [key for key in inspect.signature(made).parameters if key not in ("data", "data_dir", "judge")]
    if unknown := sorted(set(options) - set(known)):
        raise InputError(f"{name} has no option {unknown[0]!r}", hint=f"known: {', '.join(known) or 'none'}")
    folder = data_folder(name, data)
    extra = _judge(judge) if judge is not None and "judge" in inspect.signature(made).parameters else {}
    return made(folder, **{**extra, **options}), options, folder


def _judge(given: dict[str, Any]) -> dict[str, Any]:
    """The benchmark's arguments that concern its judge."""
    from reweigh.benchmarks.data import data_root
    from reweigh.benchmarks.judge import DEFAULT_MODEL, CachedJudge, ChatEndpoint
    from reweigh.benchmarks.judge.endpoint import DEFAULT_URL

    endpoint = ChatEndpoint(
        given["model"] or DEFAULT_MODEL,
        base_url=given["url"] or DEFAULT_URL,
        key_variable=given["key"],
        per_minute=given["per_minute"],
    )
    judge = CachedJudge(endpoint, given["cache"] or data_root() / "verdicts")
    return {
        "judge": judge,
        "prompt": given["prompt"],
        "rules": given["rules"],
        "concurrency": given["concurrency"],
    }


def data_folder(name: str, data: Path | None) -> Path:
    """The folder given, or the one where `reweigh data get` puts the benchmark's files."""
    from reweigh.benchmarks.data import data_root

    return data if data is not None else data_root() / DATASETS.get(name, name)


def run_places(
    record: dict[str, Any] | None, data: Path | None, images: Path | None
) -> tuple[Path | None, Path | None]:
    """Where a run found its data and images, unless told otherwise or no longer there."""
    kept = (record or {}).get("places", {})
    known = {name: Path(place) for name, place in kept.items() if Path(place).is_dir()}
    return data or known.get("data"), images or known.get("images")


def image_folder(name: str, folder: Path, images: Path | None) -> Path:
    """The folder given, or where the images are: with the data, or with COCO's."""
    from reweigh.benchmarks.data import data_root

    if images is not None:
        if not images.is_dir():
            raise InputError(f"{images} is not a folder", hint="--images wants the folder of the images")
        return images
    coco = data_root() / "coco-val2014"
    on_coco = name in ("chair", "pope") and coco.is_dir() and not (folder / "val2014").is_dir()
    return coco if on_coco else folder


def image_finder(
    name: str, folder: Path, images: Path | None, manifest: list[dict[str, Any]], items: Any
) -> Callable[[Id], Path | None]:
    """From an item's id to its image file; None where images are not at hand."""
    from reweigh.runs.record import find_image

    place = image_folder(name, folder, images)
    known: dict[Id, list[str]] = {item.id: _image_names(item.image) for item in items}
    known |= {row["id"]: [row["image"]] for row in manifest}

    def find(identity: Id) -> Path | None:
        for image in known.get(identity, []):
            with contextlib.suppress(InputError):
                return find_image(place, image)
        return None

    return find


def _image_names(image: Id) -> list[str]:
    """File names that an item's image can have; COCO's are made of its number."""
    if isinstance(image, str):
        return [image]
    return [f"COCO_val2014_{image:012d}.jpg", f"{image:012d}.jpg", f"{image}.png"]


def option_values(pairs: list[str]) -> dict[str, Any]:
    """Read name=value options; a value is JSON if it can be, otherwise text."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError(f"the option {pair!r} is not of the form name=value")
        try:
            values[name.replace("-", "_")] = json.loads(text)
        except json.JSONDecodeError:
            values[name.replace("-", "_")] = text
    return values
