"""The embedded world: scenes, descriptions and a small trained LLaVA, so that everything runs offline on a real model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from reweigh.errors import ArtifactError
from reweigh.files.seals import read_sealed

if TYPE_CHECKING:
    from PIL.Image import Image

HERE = Path(__file__).parent


def path() -> Path:
    """Return the checkpoint folder: ``AutoModelForImageTextToText.from_pretrained(reweigh.world.path())``."""
    return _present(HERE / "checkpoint", "config.json")


def table_path() -> Path:
    """Return the folder of reference tables, one for each calibrated layer."""
    return _present(HERE / "table", "manifest.json")


def picture(number: int, split: str = "evaluation") -> Image:
    """Draw a scene by its number; those of the split "calibration" never occur in an evaluation.

    Examples:
        >>> picture(129).size
        (112, 112)
    """
    from reweigh.world.scenes import scene

    return scene(split, number).image()


def operating_point() -> dict[str, Any]:
    """Read layer and beta, chosen on tuning scenes only."""
    return read_sealed(table_path() / "operating_point.json")


def _present(folder: Path, file: str) -> Path:
    if not (folder / file).is_file():
        raise ArtifactError(
            f"{folder / file} is missing from the installed package", hint="install reweigh again"
        )
    return folder
