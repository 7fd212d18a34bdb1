"""``reweigh serve``: the OpenAI API and the inspector page on one model."""

from __future__ import annotations

import os
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

from reweigh.cli import common
from reweigh.cli.options import grouped
from reweigh.errors import InputError, require_known
from reweigh.options import WORDS, parse_options, require_kind
from reweigh.serve.bounds import Bounds

app = typer.Typer(add_completion=False)

KEY = "REWEIGH_API_KEY"
"""Environment variable with the key that clients must present."""
LIMIT = "limit"
"""Table of a settings file with the server's bounds."""
LIMITS = ", ".join(
    f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
    for name, value in asdict(Bounds()).items()
)


def read_settings(context: typer.Context, path: Path | None) -> Path | None:
    """Make a file's settings the defaults of the options of the same names."""
    if path is None:
        return None
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error})", hint="it must be a TOML file") from error
    kinds = {name: kind for name, kind in serve.__annotations__.items() if name not in ("context", "config")}
    kinds["json"] = bool
    settings = {name.replace("-", "_"): value for name, value in found.items()}
    require_known(f"setting (in {path})", settings, kinds)
    limits = settings.pop(LIMIT, {})
    if not isinstance(limits, dict):
        raise InputError(
            f"{path}: {LIMIT} must be a table", hint=f"write [{LIMIT}], then lines like seconds = 60"
        )
    Bounds.of(limits)
    context.meta[LIMIT] = limits
    for name, value in settings.items():
        settings[name] = _checked(f"{path}: {name}", kinds[name], value)
    common.be_json(settings.pop("json", False) or common.wants_json())
    context.default_map = settings
    return path


def _checked(name: str, annotation: Any, value: Any) -> Any:
    """Return a setting as its option takes it; refuse another type, which the command line would parse from text."""
    several = get_origin(annotation) is list
    values = value if several and isinstance(value, list) else [value]
    kind = next((one for one in (annotation, *get_args(annotation)) if one in WORDS), str)
    for one in values:
        require_kind(name, one, kind)
    return values if several else value


@app.command()
@grouped
def serve(
    context: typer.Context,
    model: str = common.MODEL_OR_WORLD,
    *,
    config: Path = typer.Option(
        None,
        "--config",
        is_eager=True,
        callback=read_settings,
        help="TOML file with any of these options; the command line wins.",
    ),
    table: str = common.TABLE,
    layer: int = common.LAYER,
    beta: float = common.BETA,
    decoder: list[str] = typer.Option(
        [],
        "--decoder",
        metavar="NAME",
        help="Let requests choose this decoder too, repeatable; many take seconds of the model's time.",
    ),
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
        help=f"Upper bound on what the server accepts, repeatable; by default {LIMITS}.",
        rich_help_panel=common.ADVANCED,
    ),
    allow_urls: str = typer.Option(
        None, help="Fetch image URLs that match this regular expression in full; by default none."
    ),
    log_prompts: bool = typer.Option(False, "--log-prompts", help="Write prompts to the log."),
    loading: common.Loading,
    force: bool = common.FORCE,
) -> None:
    """Serve a model with the OpenAI API, and a page that shows why each word was emitted or suppressed.

    The environment variable REWEIGH_API_KEY sets the key that clients must present. Without a table the server answers
    with the base model. Ctrl-C finishes the answers being decoded; SIGHUP reads the table again. --json writes the log as
    JSON.
    """
    from reweigh.serve.bounds import is_loopback, listen, require_extra

    require_extra()
    from reweigh.rivals import DECODERS
    from reweigh.serve.app import Server
    from reweigh.serve.fetch import Fetcher
    from reweigh.serve.run import run
    from reweigh.serve.served import Served

    key = os.environ.get(KEY) or None
    if key is not None and not all("!" <= mark <= "~" for mark in key):
        raise InputError(
            f"{KEY} has white space or characters outside ASCII, so no client could send it",
            hint="a line end at the end of a file is a frequent cause",
        )
    if key is None and not is_loopback(host) and not without_key:
        raise InputError(
            f"anyone who can reach {host} could use this server, and {KEY} is not set",
            hint=f"export {KEY}=..., or pass --without-key",
        )
    require_known("decoder", decoder, DECODERS)
    bounds = Bounds.of({**context.meta.get(LIMIT, {}), **parse_options(limit)})
    fetcher = None if allow_urls is None else Fetcher(allow_urls, most=bounds.body_bytes)
    point = common.Point(table=table, layer=layer, beta=beta)
    source = point.of(model) if model == common.WORLD or table is not None else None
    with listen(host, port) as address:
        loaded, processor = loading.load(model)
        served = Served(
            loaded,
            processor,
            name=name or _name(model, loaded),
            names=() if Path(model).exists() else [model],
            table=source,
            layer=layer,
            beta=beta,
            decoders=decoder,
            template=loading.template,
            force=force,
            world=model == common.WORLD,
        )
        server = Server(
            served,
            bounds,
            key=key,
            hosts=[host, *allowed_host],
            fetcher=fetcher,
            log_prompts=log_prompts,
        )
        if served.reason is not None:
            typer.echo(f"ReWEIGH is not available: {served.reason}", err=True)
        run(server, address, host=host, json=common.wants_json())


def _name(model: str, loaded: Any) -> str:
    """Return the name for clients: never the path of a folder."""
    if model == common.WORLD:
        return "reweigh-world"
    return str(loaded.config.model_type) if Path(model).exists() else model
