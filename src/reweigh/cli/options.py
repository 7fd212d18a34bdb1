"""Options that several commands share, declared once in dataclasses that a command takes as one parameter each.

``grouped`` expands such a parameter on the command line: typer sees the options of the group instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

import typer
from typer.models import OptionInfo

from reweigh.cli import common
from reweigh.errors import InputError
from reweigh.options import parse_options, typed_options

if TYPE_CHECKING:
    from reweigh.cluster import Cluster
    from reweigh.lab.runs.task import Runs, Task
    from reweigh.lab.tasks.judge import JudgeSettings

REWEIGH = "reweigh"
DECODER = typer.Option(REWEIGH, "--decoder", help="reweigh, base, vcd, or another decoder by name.")
DECODER_OPTION = typer.Option(
    [], "--decoder-option", metavar="NAME=VALUE", help="Option of the decoder; repeatable."
)
REGIME = typer.Option("own", "--regime", help="How to decode: own, greedy or sampling.")
BENCHMARK = typer.Option(
    None,
    "--benchmark",
    "-b",
    help="chair, amber-generative, pope, mmhal, mmvet, or objects for pictures of your own; `world` needs none.",
)
CAPTIONED = typer.Option(
    None,
    "--benchmark",
    "-b",
    help="chair, or objects for pictures of your own; `world` needs none.",
)
"""A benchmark of descriptions whose objects are scored."""
DATA = typer.Option(None, help="Folder with the benchmark's files; by default that of `reweigh data`.")
OPTION = typer.Option(
    [],
    "--option",
    metavar="NAME=VALUE",
    help="Option of the benchmark, or images=DIR if the images are elsewhere; repeatable.",
)
RAY = typer.Option(
    None,
    metavar="ADDRESS[,NAME=VALUE]",
    help="Run on Ray: `local`, `auto` (this machine's cluster) or host:port, with workers=N, and gpus=N or cpus=N for "
    "each, e.g. auto,gpus=1.",
    rich_help_panel=common.ADVANCED,
)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Expand the parameters of ``command`` that are dataclasses of options; use it below ``@app.command()``."""
    hints = get_type_hints(command)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

    @wraps(command)
    def flat(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    options: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name in groups:
            options += _spelled_out(groups[name])
        else:
            options.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))
    flat.__signature__ = Signature(options)  # type: ignore[attr-defined]
    flat.__annotations__ = {option.name: option.annotation for option in options}
    return flat


def _spelled_out(group: Any) -> list[Parameter]:
    """Return one parameter for each option: first those in the group's own panel of the help, ``PANEL``."""
    hints = get_type_hints(group)
    own: list[Parameter] = []
    others: list[Parameter] = []
    for field in fields(group):
        option: Any = copy(field.default)
        (others if option.rich_help_panel else own).append(
            Parameter(field.name, Parameter.KEYWORD_ONLY, default=option, annotation=hints[field.name])
        )
        if isinstance(option, OptionInfo) and not option.rich_help_panel:
            option.rich_help_panel = getattr(group, "PANEL", None)
    return own + others


def split_images(benchmark: str | None, options: list[str]) -> tuple[dict[str, Any], Path | None]:
    """Parse options of a benchmark (None: a run folder's), and take out the folder of images unless it opens that itself.

    A number is not a folder: chair's own option of that name says how many images are drawn.
    """
    from reweigh.lab.tasks import find_benchmark

    found = parse_options(options)
    own = None if benchmark is None else signature(find_benchmark(benchmark)).parameters.get("images")
    counts = own is not None and isinstance(own.default, int)
    if "images" not in found or (own is not None and (not counts or isinstance(found["images"], int))):
        return found, None
    return found, Path(str(found.pop("images")))


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions(common.Loading):
    """The model of an experiment, which records of a benchmark it answers, and how; a group of options."""

    PANEL: ClassVar[str] = "Records and answers"

    model: str = common.MODEL_OR_WORLD
    data: Path | None = DATA
    option: list[str] = OPTION
    limit: int | None = typer.Option(None, min=1, help="Use only the first N records.")
    batch_size: int = typer.Option(1, min=1, help="Images to answer at once; the paper uses 1.")
    max_new_tokens: int | None = typer.Option(
        None, min=1, help="Maximum length of an answer, in tokens; by default the benchmark's."
    )
    seed: int = typer.Option(42, help="Seed for drawing images and for sampling.")
    force: bool = common.FORCE

    @property
    def is_world(self) -> bool:
        """Return whether the model is the embedded one."""
        return self.model == common.WORLD

    def benchmark(self, given: str | None) -> str:
        """Return the benchmark to use; only the embedded model can be judged on drawn scenes."""
        if given is not None:
            return given
        if self.is_world:
            return "world"
        raise InputError(
            f"no benchmark was given for {self.model}",
            hint="-b chair, or your own pictures: -b objects --option images=DIR --option truth=FILE",
        )

    def task(
        self,
        benchmark: str | None,
        *,
        drawings: Path | None = None,
        preset: Mapping[str, Any] | None = None,
        needs: tuple[str, ...] = (),
        why: str = "",
    ) -> Task:
        """Open a benchmark; options of the user override those in ``preset``.

        One without the figures that are needed is refused before its data are looked for.
        """
        from reweigh.lab.runs.task import open_task, require_figures
        from reweigh.lab.tasks import find_benchmark

        name = self.benchmark(benchmark)
        if declared := [info.name for info in find_benchmark(name).metrics]:
            require_figures(name, declared, needs, why)
        options, images = split_images(name, self.option)
        task = open_task(
            name,
            self.data,
            images=images,
            options={**(preset or {}), **options},
            limit=self.limit,
            seed=self.seed,
            drawings=drawings,
        )
        task.require(needs, why)
        return task.with_length(self.max_new_tokens)

    def runs(self, task: Task, loaded: tuple[Any, Any] | None = None) -> Runs:
        """Return how runs are answered and recorded; on a cluster, its workers describe the model."""
        from reweigh.lab.runs.model import describe_model
        from reweigh.lab.runs.task import Runs

        about = {} if loaded is None else describe_model(*loaded)
        how = self.arguments
        model = {"id": self.model, "revision": how["revision"], "dtype": how["dtype"]} | about
        return Runs(task, model, self.batch_size, self.seed, self.template)


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """Which judge rates the answers, and how its replies are read; a group of options."""

    PANEL: ClassVar[str] = "Judge (MMHal-Bench, MM-Vet)"
    KINDS: ClassVar[dict[str, type]] = {
        "model": str,
        "url": str,
        "key": str,
        "prompt": Path,
        "cache": Path,
        "timeout": float,
        "rules": str,
        "concurrency": int,
        "per_minute": float,
    }

    judge_option: list[str] = typer.Option(
        [],
        metavar="NAME=VALUE",
        help="model, url, key (the environment variable that holds it), prompt (a file), cache (a folder), timeout "
        "(seconds), rules (strict or official), concurrency or per_minute; repeatable.",
    )

    def settings(self) -> JudgeSettings:
        """Return the settings of the judge."""
        from reweigh.lab.tasks.judge import JudgeSettings

        return JudgeSettings(**typed_options(self.judge_option, self.KINDS, "judge option"))


def open_cluster(ray: str) -> Cluster:
    """Return the cluster that --ray names."""
    from reweigh.cli.plugin import loaded_plugins
    from reweigh.cluster import Cluster

    if plugins := loaded_plugins():
        raise InputError(
            f"--plugin {plugins[0].name} is not available on the workers of --ray",
            hint="install it as a package with the entry point reweigh.decoders or reweigh.benchmarks",
        )
    address, *rest = ray.split(",")
    found = typed_options(rest, {"workers": int, "gpus": float, "cpus": float}, "Ray option")
    return Cluster(address=address, **found)


def require_apart(options: Mapping[str, Any], tasks: Sequence[Task]) -> None:
    """Refuse to evaluate on the records that the recorded point of a decoder's table was chosen on."""
    from reweigh.tables.store import fetch_folder, recorded_point

    if options.get("table") is None or options.get("beta") is not None:
        return
    if (point := recorded_point(fetch_folder(options["table"]))) is None:
        return
    for task in tasks:
        task.require_apart(point.pictures, f"the operating point in {options['table']} was chosen on")


def decoder_options(
    decoder: str, texts: list[str], model: str, point: common.Point, *, force: bool
) -> dict[str, Any]:
    """Return the decoder's options, checked; table, layer and beta are passed only to a decoder that needs a table."""
    from reweigh.rivals import DECODERS, check_options

    entry, options = DECODERS[decoder], parse_options(texts)
    if entry.needs_table:
        options = {**point.options(model), "force": force, **options}
    elif given := point.given():
        common.note(f"{decoder} does not use {' and '.join(given)}")
    check_options(decoder, entry, options)
    return options
