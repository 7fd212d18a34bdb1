"""Options of the commands that answer or score a benchmark: its records, how they are answered, its judge."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from reweigh.cli import common
from reweigh.errors import InputError
from reweigh.options import choose_options, parse_options

if TYPE_CHECKING:
    from reweigh.benchmarks.judge import JudgeSettings
    from reweigh.runs.task import Runs, Task

BENCHMARK = typer.Option(
    None,
    "--benchmark",
    "-b",
    help="chair, amber-generative, pope, mmhal, mmvet, or objects for pictures of your own; `world` needs none.",
)
DATA = typer.Option(None, help="Folder with the benchmark's files; by default that of `reweigh data`.")
OPTION = typer.Option(
    [],
    "--option",
    metavar="NAME=VALUE",
    help="Option of the benchmark, or images=DIR if the images are elsewhere; repeatable.",
)


def benchmark_of(model: str, benchmark: str | None) -> str:
    """The benchmark to use; only the embedded model can be judged on drawn scenes."""
    if benchmark is not None:
        return benchmark
    if model == common.WORLD:
        return "world"
    raise InputError(
        f"no benchmark was given for {model}",
        hint="-b chair, or your own pictures: -b objects --option images=DIR --option truth=FILE",
    )


def split_images(benchmark: str, options: list[str]) -> tuple[dict[str, Any], Path | None]:
    """Parse options of a benchmark, and take out the folder of images unless the benchmark opens it itself.

    A number is not a folder: chair's own option of that name says how many images are drawn.
    """
    from reweigh.benchmarks import find_benchmark

    found = parse_options(options)
    own = inspect.signature(find_benchmark(benchmark)).parameters.get("images")
    counts = own is not None and isinstance(own.default, int)
    if "images" not in found or (own is not None and (not counts or isinstance(found["images"], int))):
        return found, None
    return found, Path(str(found.pop("images")))


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """Which records of a benchmark are answered, and how; a group of options."""

    data: Path | None = DATA
    option: list[str] = OPTION
    limit: int | None = typer.Option(None, min=1, help="Use only the first N records.")
    batch_size: int = typer.Option(1, min=1, help="Images to answer at once; the paper uses 1.")
    max_new_tokens: int | None = typer.Option(
        None, min=1, help="Maximum length of an answer, in tokens; by default the benchmark's."
    )
    seed: int = typer.Option(42, help="Seed for drawing images and for sampling.")

    def task(
        self,
        name: str,
        *,
        drawings: Path | None = None,
        preset: Mapping[str, Any] | None = None,
        shard: str = "1/1",
    ) -> Task:
        """Open a benchmark; options of the user override those in ``preset``."""
        from reweigh.runs.task import open_task

        options, images = split_images(name, self.option)
        task = open_task(
            name,
            self.data,
            images=images,
            options={**(preset or {}), **options},
            limit=self.limit,
            seed=self.seed,
            shard=shard,
            drawings=drawings,
        )
        return task.with_length(self.max_new_tokens)

    def runs(
        self,
        task: Task,
        name: str,
        loading: common.Loading,
        loaded: tuple[Any, Any] | None = None,
        *,
        force: bool = False,
    ) -> Runs:
        """How runs of a model are answered and recorded; a model on a cluster is described by its workers."""
        from reweigh.runs.model import describe_model
        from reweigh.runs.task import Runs

        about = {} if loaded is None else describe_model(*loaded)
        how = loading.arguments
        model = {"id": name, "revision": how["revision"], "dtype": how["dtype"]} | about
        return Runs(task, model, self.batch_size, self.seed, loading.template, force)


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """Which judge rates the answers, and how its replies are read; a group of options."""

    PANEL: ClassVar[str] = "Judge (MMHal-Bench, MM-Vet)"
    NAMES: ClassVar[dict[str, str]] = {
        "model": "model",
        "url": "url",
        "key": "key_variable",
        "prompt": "prompt",
        "cache": "cache",
        "timeout": "timeout",
        "rules": "rules",
        "concurrency": "concurrency",
        "per_minute": "per_minute",
    }
    """Names as typed, and as ``JudgeSettings`` calls them."""

    judge: str = typer.Option(
        "chat", help="chat (the official judge) or systemone (closed questions to an open model)."
    )
    judge_option: list[str] = typer.Option(
        [],
        metavar="NAME=VALUE",
        help="model, url, key (the environment variable that holds it), prompt (a file), cache (a folder), timeout "
        "(seconds), rules (strict or official), concurrency or per_minute; repeatable.",
    )

    def settings(self) -> JudgeSettings:
        """The settings of the judge."""
        from reweigh.benchmarks.judge import JudgeSettings

        given = choose_options(self.judge_option, self.NAMES, "judge option")
        for name in ("model", "url", "key", "rules"):
            if name in given:
                given[name] = str(given[name])
        for name in ("prompt", "cache"):
            if name in given:
                given[name] = Path(str(given[name]))
        for name in ("timeout", "concurrency", "per_minute"):
            value = given.get(name, 1)
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise InputError(f"the judge's {name} must be a positive number, not {value!r}")
        return JudgeSettings(kind=self.judge, **{self.NAMES[name]: value for name, value in given.items()})
