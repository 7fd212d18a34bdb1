"""Options of the commands that can work on a Ray cluster, and how an actor there loads what MODEL names."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from reweigh.cli import common


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """Whether and where to use Ray; a group of options."""

    ray: str | None = typer.Option(
        None,
        metavar="ADDRESS",
        help="Run on Ray: `local` starts a cluster here, `auto` joins this machine's, or give host:port.",
    )
    ray_workers: int | None = typer.Option(None, min=1, help="Number of actors; by default as many as fit.")
    ray_gpus: float = typer.Option(0.0, min=0, help="GPUs per actor.")
    ray_cpus: float = typer.Option(1.0, min=0, help="CPUs per actor.")

    def cluster(self) -> Any:
        """The cluster that was asked for."""
        from reweigh.cluster import Cluster

        return Cluster(
            address=str(self.ray), workers=self.ray_workers, gpus=self.ray_gpus, cpus=self.ray_cpus
        )


def loading(model: str, weights: common.Weights) -> dict[str, Any]:
    """Arguments with which an actor loads a model: found from any folder, and called as it is called here."""
    if model == common.WORLD:
        return {"name": str(common.world_path()), "load": asdict(weights), "called": "reweigh world"}
    folder = Path(model)
    name = str(folder.resolve()) if folder.is_dir() else model
    return {"name": name, "load": asdict(weights), "called": model}
