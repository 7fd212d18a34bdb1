"""What several commands share: the model argument, options, output for people and for programs."""

from __future__ import annotations

import contextlib
import difflib
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from reweigh.errors import InputError, ReweighError
from reweigh.files.artifacts import to_json
from reweigh.options import parse_options, typed_options
from reweigh.text import DESCRIBE, Template

if TYPE_CHECKING:
    from reweigh.lab.views.report import Report

WORLD = "world"
"""Name of the embedded model on the command line."""

MODEL = typer.Argument(help="Hub id or checkpoint folder; `world` is the embedded model.")
MODEL_OR_WORLD = typer.Argument(WORLD, help="Hub id or checkpoint folder; by default the embedded model.")
ADVANCED = "Advanced"
"""Panel in the help for options that few people need."""
JSON = typer.Option(False, "--json", help="Print JSON instead of text.")
"""For the tools beside the package; `reweigh` has it as an option of all commands."""
FORCE = typer.Option(
    False,
    "--force",
    help="Use a table that seems to belong to another model.",
    rich_help_panel=ADVANCED,
)
TABLE = typer.Option(None, "--table", "-t", help="Table folder or Hub repository; `world` brings its own.")
LAYER = typer.Option(
    None, "--layer", "-l", help="0-based decoder block; by default the tuned or published one."
)
BETA = typer.Option(None, help="Maximum penalty in logits; by default the tuned or published one.")
RESUMES = "Output folder; the same command resumes there."
GLANCE = 8
"""Number of pictures in a folder to check before a model is loaded."""

PIPE_WIDTH = 160
"""Width of output to a file or program, unless the variable COLUMNS is set."""


@dataclass(frozen=True, kw_only=True)
class Loading:
    """How to load the model, and its prompt template; a group of one repeatable option."""

    PREFIX: ClassVar[str] = "template."
    """Begins the name of an argument of the model's chat template."""

    KINDS: ClassVar[dict[str, type]] = {
        "dtype": str,
        "device": str,
        "revision": str,
        "trust_remote_code": bool,
        "template": str,
    }

    model_option: list[str] = typer.Option(
        [],
        metavar="NAME=VALUE",
        help="dtype=bfloat16, device=cpu, revision=TAG, trust_remote_code=true; template.enable_thinking=false for the "
        "model's chat template, or template=TEXT with {prompt} in its place; repeatable.",
        rich_help_panel=ADVANCED,
    )

    def __post_init__(self) -> None:
        self.chosen, self.template  # noqa: B018  # refused before anything else happens

    @cached_property
    def chosen(self) -> dict[str, Any]:
        """Return the options given."""
        known = [text for text in self.model_option if not text.startswith(self.PREFIX)]
        return typed_options(known, self.KINDS, "model option")

    @cached_property
    def template(self) -> Template | None:
        """Return the prompt template, or the arguments of the model's own."""
        text = self.chosen.get("template")
        arguments = parse_options(
            one.removeprefix(self.PREFIX) for one in self.model_option if one.startswith(self.PREFIX)
        )
        if text is not None and arguments:
            raise InputError(
                f"{self.PREFIX}{next(iter(arguments))} is for the model's chat template, which template=TEXT replaces",
                hint="leave one of them out",
            )
        return text or arguments or None

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``families.load``, defaults included."""
        defaults = {"dtype": "auto", "device": None, "revision": None, "trust_remote_code": False}
        return defaults | {name: one for name, one in self.chosen.items() if name != "template"}

    def load(self, name: str) -> tuple[Any, Any]:
        """Load what a command's MODEL argument names: a model and its processor."""
        quiet()
        from reweigh.families.load import load

        found = self.locate(name)
        model, processor = load(found["name"], **found["load"])
        model.name_or_path = found["called"]
        return model, processor

    def locate(self, name: str) -> dict[str, Any]:
        """Return where a model is, from any folder, the arguments that load it, and the name that records keep."""
        if name == WORLD:
            from reweigh.world import path

            return {"name": str(path()), "load": self.arguments, "called": "reweigh world"}
        folder = Path(name)
        found = str(folder.resolve()) if folder.is_dir() else name
        return {"name": found, "load": self.arguments, "called": name}

    def require_mlx(self) -> None:
        """Refuse what cannot be chosen on MLX."""
        if wrong := sorted({"dtype", "device"} & self.chosen.keys()):
            raise InputError(f"{wrong[0]} cannot be set on MLX, which computes in the checkpoint's own type")

    def load_mlx(self, name: str) -> tuple[Any, Any]:
        """Load the same with mlx-vlm."""
        self.require_mlx()
        quiet()
        from reweigh.engines.mlx import load

        options = {key: self.arguments[key] for key in ("revision", "trust_remote_code")}
        return load(self.locate(name)["name"] if name == WORLD else name, **options)


@dataclass(frozen=True, kw_only=True)
class Question:
    """The prompt and the maximum length of the answer; a group of options."""

    prompt: str = typer.Option(DESCRIBE, help="Prompt for the model.")
    max_new_tokens: int = typer.Option(512, min=1, help="Maximum length of the answer, in tokens.")


@dataclass(frozen=True, kw_only=True)
class Point:
    """Table, layer and beta, as far as they are given; a group of options."""

    table: str | None = TABLE
    layer: int | None = LAYER
    beta: float | None = BETA

    def __post_init__(self) -> None:
        if self.beta is not None:
            from reweigh.method.edit import check_beta

            check_beta(self.beta)

    def of(self, name: str) -> str:
        """Return the table for the model of that name."""
        return table_of(name, self.table, self.layer)

    def options(self, name: str) -> dict[str, Any]:
        """Return table, layer and beta as arguments of a decoder, which fills in what is not given."""
        return {"table": self.of(name), "layer": self.layer, "beta": self.beta}

    def given(self) -> list[str]:
        """Return the flags of this group that were given."""
        return [f"--{name}" for name in ("table", "layer", "beta") if getattr(self, name) is not None]


def require_ending(option: str, path: Path, ending: str) -> None:
    """Refuse a file whose name would not say what it holds."""
    if path.suffix.lower() != ending:
        raise InputError(
            f"{option} must end in {ending}, not {path.suffix or 'nothing'}: {path}",
            hint=f"{option} {path.with_suffix(ending)}",
        )


def table_of(name: str, table: str | None, layer: int | None = None) -> str:
    """Return a command's table after checking that it has the layer; the embedded model brings its own."""
    if table is None and name == WORLD:
        from reweigh.world import table_path

        table = str(table_path())
    if table is not None:
        _require_layer(table, layer)
        return table
    if difflib.get_close_matches(name, [WORLD], cutoff=0.7):
        raise InputError(f"{name!r} is not a model", hint=f"the embedded model is called {WORLD}")
    raise InputError(
        "no reference table was given",
        hint="make one: reweigh calibrate MODEL IMAGES -o FOLDER, then --table FOLDER",
    )


def _require_layer(table: str, layer: int | None) -> None:
    """Refuse a folder without a table of that layer; negative layers are checked once the model is loaded."""
    from reweigh.tables.store import fetch_folder, table_layers

    found = table_layers(fetch_folder(table))
    if layer is not None and layer >= 0 and layer not in found:
        raise InputError(
            f"{table} holds no table of layer {layer}", hint=f"it holds {', '.join(map(str, found))}"
        )


def require_pictures(name: str, pictures: Sequence[Path]) -> None:
    """Refuse a model's folder that does not exist and unreadable pictures; warn if `world` cannot know them."""
    from reweigh.families.load import require_folder
    from reweigh.images import read_image

    require_folder(name)
    sizes = {path: read_image(path).size for path in pictures}
    if name == WORLD:
        _warn_of_strange(sizes)


def look_into(name: str, folder: Path) -> None:
    """Warn if `world` cannot know the first pictures of a folder; unreadable ones are reported later."""
    from reweigh.images import list_images, read_image

    if name != WORLD or not folder.is_dir():
        return
    sizes: dict[Path, tuple[int, int]] = {}
    for path in list_images(folder)[:GLANCE]:
        with contextlib.suppress(ReweighError):
            sizes[path] = read_image(path).size
    _warn_of_strange(sizes)


def _warn_of_strange(sizes: Mapping[Path, tuple[int, int]]) -> None:
    """Warn once about pictures that are not scenes of the embedded world."""
    from reweigh.world.scenes import SIZE

    strange = [path for path, size in sizes.items() if size != (SIZE, SIZE)]
    if strange:
        these = f"{strange[0]} and {len(strange) - 1} more are" if len(strange) > 1 else f"{strange[0]} is"
        typer.echo(
            f"warning: {these} not the size of a drawn scene ({SIZE} x {SIZE}). `world` knows only its own "
            "drawings; its answers about other pictures are meaningless. `reweigh world draw -o FOLDER` draws some",
            err=True,
        )


_verbose = False


def be_verbose(verbose: bool) -> None:
    """Show all messages of transformers from now on, or only errors."""
    global _verbose
    _verbose = verbose


def quiet() -> None:
    """Hide loading bars and notes of transformers unless --verbose is given; errors are always shown."""
    from transformers.utils import logging

    if _verbose:
        logging.set_verbosity_info()
        logging.enable_progress_bar()
        return
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def note(text: str) -> None:
    """Print a note on standard error, unless --quiet is given."""
    from reweigh.progress import is_quiet

    if not is_quiet():
        typer.echo(text, err=True)


_json = False


def be_json(json: bool) -> None:
    """Print results as JSON from now on, or as text."""
    global _json
    _json = json


def wants_json() -> bool:
    """Return whether --json was given."""
    return _json


def emit_json(value: Any) -> None:
    """Print canonical JSON on standard output."""
    typer.echo(to_json(value), nl=False)


def show(value: Any, text: Callable[[], None]) -> None:
    """Print a result: as JSON with --json, otherwise as text."""
    if _json:
        emit_json(value)
    else:
        text()


def show_report(report: Report) -> None:
    """Print an experiment's results: the numbers as JSON with --json, otherwise the page."""
    show(report.numbers, lambda: console().print(report.page.terminal()))


def same(model: str, **options: str | None) -> str:
    """Join the model and the options that were given, for the command to run next."""
    given = (f"--{name} {quoted(value)}" for name, value in options.items() if value is not None)
    return " ".join([quoted(model), *given])


def quoted(word: object) -> str:
    """Quote a path or another word of a command to run next, as a shell needs it."""
    return shlex.quote(str(word))


def finish(*written: Path | str, then: str | None = None) -> None:
    """End a long command: note what was written, and the command to run next."""
    if written:
        note(f"written: {', '.join(map(str, written))}")
    if then is not None:
        note(f"next: {then}")


def console() -> Any:
    """Make a rich console that wraps to the terminal; in a pipe it has no colors and does not truncate."""
    import os

    from rich.console import Console

    found = Console(highlight=False)
    if not found.is_terminal and "COLUMNS" not in os.environ:
        found.width = PIPE_WIDTH
    return found
