"""What several commands share: the model argument, output for people and for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from reweigh.artifacts import to_json
from reweigh.errors import InputError

WORLD = "world"
"""The name under which commands know the embedded model."""

MODEL = typer.Argument(help="Hub id or checkpoint folder; `world` is the embedded model.")
DTYPE = typer.Option("auto", help="auto, float32, bfloat16 or float16.")
DEVICE = typer.Option(None, help="cpu, cuda, mps ...; the best one present if not given.")
REVISION = typer.Option(None, help="Branch, tag or commit of a Hub model.")
REMOTE = typer.Option(False, "--trust-remote-code", help="Run code that a Hub model brings along.")
JSON = typer.Option(False, "--json", help="Print JSON for a program instead of text for a person.")
FORCE = typer.Option(
    False, "--force", help="Use a table although its model, tokenizer or dtype seems to be another."
)
TABLE = typer.Option(
    None, "--table", "-t", help="Table folder or Hub repository; the shipped one for `world`."
)
LAYER = typer.Option(None, help="0-based decoder block, where the table folder holds several.")
BETA = typer.Option(None, help="Maximum penalty in logits; 1.1 unless the model has its own.")


def load_model(
    name: str,
    *,
    dtype: str = "auto",
    device: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> tuple[Any, Any]:
    """Load what a command's MODEL argument names."""
    quiet()
    from reweigh.families.load import load

    where = str(world_path()) if name == WORLD else name
    return load(where, dtype=dtype, device=device, revision=revision, trust_remote_code=trust_remote_code)


def world_path() -> Path:
    """The embedded checkpoint's folder."""
    from reweigh.world import path

    return Path(path())


def operating_point(
    name: str, table: str | None, layer: int | None, beta: float | None
) -> tuple[str, int | None, float]:
    """Table, layer and beta of a command; the embedded model brings its own."""
    from reweigh.intervene.attach import BETA

    if name == WORLD and table is None:
        from reweigh.world import operating_point as shipped
        from reweigh.world import table_path

        point = shipped()
        return (
            str(table_path()),
            point["layer"] if layer is None else layer,
            point["beta"] if beta is None else beta,
        )
    if table is None:
        raise InputError(
            "no reference table was given",
            hint="make one: reweigh calibrate MODEL IMAGES -o FOLDER, then --table FOLDER",
        )
    return table, layer, BETA if beta is None else beta


def quiet() -> None:
    """Keep transformers' loading bars and notes off the terminal; errors still come through."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def emit_json(value: Any) -> None:
    """Print canonical JSON on standard output."""
    typer.echo(to_json(value), nl=False)


def console(*, stderr: bool = False) -> Any:
    """A rich console that wraps to the terminal and drops colours in a pipe."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)
