"""``reweigh serve``: the OpenAI API and the inspector page on one model."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from reweigh.cli import common
from reweigh.cli.groups import grouped
from reweigh.errors import InputError
from reweigh.serve.bounds import Bounds

app = typer.Typer(add_completion=False)

KEY = "REWEIGH_API_KEY"
"""Environment variable with the key that clients must present."""
DEFAULTS = Bounds()


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the server accepts; a group of options."""

    body_bytes: int = typer.Option(DEFAULTS.body_bytes, min=1, help="Maximum bytes per request.")
    body_seconds: float = typer.Option(
        DEFAULTS.body_seconds, min=0.001, help="Seconds for a request's body to arrive."
    )
    image_bytes: int = typer.Option(DEFAULTS.image_bytes, min=1, help="Maximum bytes per encoded image.")
    image_pixels: int = typer.Option(DEFAULTS.image_pixels, min=4, help="Maximum pixels per image.")
    images: int = typer.Option(DEFAULTS.images, min=1, help="Maximum images per conversation.")
    prompt_tokens: int = typer.Option(DEFAULTS.prompt_tokens, min=1, help="Maximum tokens per prompt.")
    new_tokens: int = typer.Option(DEFAULTS.new_tokens, min=1, help="Maximum tokens per answer.")
    choices: int = typer.Option(DEFAULTS.choices, min=1, help="Maximum answers per request (n).")
    queue_rows: int = typer.Option(
        DEFAULTS.queue_rows,
        "--queue",
        min=1,
        help="Maximum number of waiting answers; further requests get 429.",
    )
    batch_rows: int = typer.Option(
        DEFAULTS.batch_rows, "--batch", min=1, help="Maximum number of answers decoded together."
    )
    seconds: float = typer.Option(DEFAULTS.seconds, min=0.001, help="Maximum seconds per request.")


@app.command()
@grouped
def serve(
    model: str = typer.Argument(
        common.WORLD, help="Hub id or checkpoint folder; `world` is the embedded model."
    ),
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
    limits: Limits,
    allow_urls: str = typer.Option(
        None, help="Fetch image URLs that match this regular expression in full; by default none."
    ),
    cache: Path = common.CACHE,
    template: str = common.TEMPLATE,
    log_prompts: bool = typer.Option(False, "--log-prompts", help="Write prompts to the log."),
    weights: common.Weights,
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
    bounds = Bounds(**asdict(limits))
    fetcher = None if allow_urls is None else Fetcher(allow_urls, most=bounds.image_bytes)
    with listen(host, port) as address:
        served = _load(model, point, weights, name=name, cache=cache, template=template, force=force)
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


def _load(
    model: str,
    point: common.Point,
    weights: common.Weights,
    *,
    name: str | None,
    cache: Path | None,
    template: str | None,
    force: bool,
) -> Any:
    """The model as it will be served."""
    from reweigh.runtime.memory import EvidenceCache
    from reweigh.serve.served import Served

    world = model == common.WORLD
    table = point.of(model) if world or point.table is not None else None
    loaded, processor = weights.load(model)
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
        template=template,
        force=force,
        world=world,
    )
