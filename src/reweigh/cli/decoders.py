"""The options of the commands that use one decoder."""

from __future__ import annotations

from typing import Any

import typer

from reweigh.cli import common
from reweigh.options import parse_options

REWEIGH = "reweigh"
DECODER = typer.Option(REWEIGH, "--decoder", help="reweigh, base, vcd, or another decoder by name.")
DECODER_OPTION = typer.Option(
    [], "--decoder-option", metavar="NAME=VALUE", help="Option of the decoder; repeatable."
)


def decoder_options(
    decoder: str, texts: list[str], model: str, point: common.Point, *, force: bool
) -> dict[str, Any]:
    """The decoder's options, checked; table, layer and beta go to a decoder with a table, the others do without."""
    from reweigh.rivals import DECODERS, check_options

    entry, options = DECODERS[decoder], parse_options(texts)
    if entry.needs_table:
        options = {**point.options(model), "force": force, **options}
    elif given := point.given():
        common.note(f"{decoder} does not use {' and '.join(given)}")
    check_options(decoder, entry, options)
    return options
