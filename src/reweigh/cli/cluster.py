"""The option of the commands that can work on a Ray cluster, and how an actor there loads what MODEL names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import typer

from reweigh.cli import common
from reweigh.errors import InputError
from reweigh.options import choose_options

NAMES = ("workers", "gpus", "cpus")


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """Whether and where to use Ray; a group of one option."""

    PANEL: ClassVar[str] = common.ADVANCED

    ray: str | None = typer.Option(
        None,
        metavar="ADDRESS[,NAME=VALUE]",
        help="Run on Ray: `local` starts a cluster here, `auto` joins this machine's, or give host:port. Add workers=N, "
        "and gpus=N or cpus=N per worker, e.g. auto,gpus=1.",
    )

    def cluster(self) -> Any:
        """The cluster that was asked for."""
        from reweigh.cli.plugin import loaded_plugins
        from reweigh.cluster import Cluster

        if plugins := loaded_plugins():
            raise InputError(
                f"--plugin {plugins[0].name} is not available on the workers of --ray",
                hint="install it as a package with the entry point reweigh.decoders or reweigh.benchmarks",
            )
        address, *rest = str(self.ray).split(",")
        found = choose_options(rest, NAMES, "Ray option")
        for name, value in found.items():
            whole = name != "workers" or isinstance(value, int)
            if isinstance(value, bool) or not isinstance(value, int | float) or not whole:
                raise InputError(f"{name} of --ray must be a number, not {value!r}")
        return Cluster(address=address, **found)


def loading_arguments(model: str, loading: common.Loading) -> dict[str, Any]:
    """Arguments with which an actor loads a model: found from any folder, and called as it is called here."""
    if model == common.WORLD:
        return {"name": str(common.world_path()), "load": loading.arguments, "called": "reweigh world"}
    folder = Path(model)
    name = str(folder.resolve()) if folder.is_dir() else model
    return {"name": name, "load": loading.arguments, "called": model}
