"""``reweigh serve``: the OpenAI API and the inspector page on one model."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from reweigh.cli import common
from reweigh.cli.groups import grouped
from reweigh.errors import InputError
from reweigh.options import choose_options
from reweigh.serve.bounds import Bounds

app = typer.Typer(add_completion=False)

KEY = "REWEIGH_API_KEY"
"""Environment variable with the key that clients must present."""
LIMITS = ", ".join(
    f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
    for name, value in asdict(Bounds()).items()
)


@app.command()
@grouped
def serve(
    model: str = common.MODEL_OR_WORLD,
    *,
    point: common.Point,
    host: str = typer.Option("127.0.0.1", help="Address to listen on; other machines need a key."),
    port: int = typer.Option(8377, min=0, max=65535, help="Port to listen on; 0 picks a free one."),
    name: str = typer.Option(
        None, help="The model's name for clients; by default the Hub id or the family's name."
    ),
    allowed_host: list[str] = typer.Option(
        [], "--allowed-host", help="Host name that clients or a proxy use for this server; repeatable."
    ),
    without_key: bool = typer.Option(
        False, "--without-key", help=f"Accept other machines although {KEY} is not set."
    ),
    limit: list[str] = typer.Option(
        [],
        metavar="NAME=VALUE",
        help=f"What the server accepts at most; repeatable. Defaults: {LIMITS}.",
        rich_help_panel=common.ADVANCED,
    ),
    allow_urls: str = typer.Option(
        None, help="Fetch image URLs that match this regular expression in full; by default none."
    ),
    cache: Path = typer.Option(None, "--cache", help="Folder for evidence, which outlives the server."),
    log_prompts: bool = typer.Option(False, "--log-prompts", help="Write prompts to the log."),
    loading: common.Loading,
    force: bool = common.FORCE,
) -> None:
    """Serve a model with the OpenAI API, and a page that shows why each word was written or held back.

    The environment variable REWEIGH_API_KEY sets the key that clients must present. Without a table the server answers
    with the base model and the other decoders. Ctrl-C finishes the answers being decoded.
    """
    from reweigh.serve.run import listen, require_extra, run

    require_extra()
    from reweigh.serve.app import Server
    from reweigh.serve.fetch import Fetcher
    from reweigh.serve.run import is_loopback

    key = os.environ.get(KEY) or None
    if key is None and not is_loopback(host) and not without_key:
        raise InputError(
            f"anyone who can reach {host} could use this server, and {KEY} is not set",
            hint=f"export {KEY}=..., or give --without-key",
        )
    bounds = parse_bounds(limit)
    fetcher = None if allow_urls is None else Fetcher(allow_urls, most=bounds.image_bytes)
    with listen(host, port) as address:
        served = _load(model, point, loading, name=name, cache=cache, force=force)
        server = Server(
            served,
            bounds,
            key=key,
            hosts=[host, *allowed_host],
            fetcher=fetcher,
            log_prompts=log_prompts,
        )
        if served.reason is not None:
            typer.echo(f"ReWEIGH is not offered: {served.reason}", err=True)
        shown = f"[{host}]" if ":" in host else host
        run(
            server.app(),
            address,
            ready=lambda taken: typer.echo(
                f"{served.name} at http://{shown}:{taken} (Ctrl-C stops)", err=True
            ),
        )


def parse_bounds(texts: list[str]) -> Bounds:
    """Read what `--limit` was given, over the defaults."""
    defaults = asdict(Bounds())
    found = choose_options(texts, defaults, "limit")
    for name, value in found.items():
        kind = type(defaults[name])
        if isinstance(value, bool) or not isinstance(value, (int, kind)):
            raise InputError(
                f"the limit {name} is {value!r}, but must be a {'whole ' if kind is int else ''}number"
            )
    return Bounds(**defaults | found)


def _load(
    model: str,
    point: common.Point,
    loading: common.Loading,
    *,
    name: str | None,
    cache: Path | None,
    force: bool,
) -> Any:
    """The model as it will be served."""
    from reweigh.runtime.memory import EvidenceCache
    from reweigh.serve.served import Served

    world = model == common.WORLD
    table = point.of(model) if world or point.table is not None else None
    loaded, processor = loading.load(model)
    if name is None:
        local = Path(model).exists()
        name = "reweigh-world" if world else str(loaded.config.model_type) if local else model
    return Served(
        loaded,
        processor,
        name=name,
        table=table,
        layer=point.layer,
        beta=point.beta,
        cache=EvidenceCache(folder=cache),
        template=loading.template,
        force=force,
        world=world,
    )
