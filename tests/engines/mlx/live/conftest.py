"""Both engines on the same checkpoints, in one process: transformers first, because mlx-vlm replaces its processors."""

from __future__ import annotations

import importlib.util
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import reweigh
from checkpoints import load, picture
from reweigh.families.load import load as load_model
from reweigh.world import path
from reweigh.world.scenes import scenes

collect_ignore_glob = [] if importlib.util.find_spec("mlx_vlm") else ["test_*.py"]

LAYER, BETA, TOKENS = 1, 4.0, 24
QUESTION = "Please describe this image in detail."
SIZES = ((56, 56), (84, 40), (30, 70), (56, 28), (61, 45))


@dataclass
class Both:
    """A checkpoint in both engines, with its table and what transformers answers."""

    folder: Path
    model: Any
    processor: Any
    pictures: list[Any]
    layer: int = LAYER
    beta: float = BETA
    limit: int = TOKENS
    base: list[Any] = field(default_factory=list)
    edited: list[Any] = field(default_factory=list)
    evidence: list[Any] = field(default_factory=list)
    mlx: Any = None
    inputs: list[Any] = field(default_factory=list)

    @property
    def table(self) -> Path:
        return self.folder / "table"

    def answer(self, corpus: list[Any], rule: str) -> None:
        """Calibrate with transformers and keep what it answers."""
        options = {"layers": [self.layer], "max_new_tokens": self.limit, "rule": rule, "show": False}
        reweigh.calibrate(self.model, self.processor, corpus, out=self.table, **options)
        rw = reweigh.attach(self.model, self.processor, table=self.table, beta=self.beta)
        for one in self.pictures:
            inputs = rw.prepare([one], [QUESTION])
            with rw.using(beta=0):
                self.base += rw.respond(inputs, max_new_tokens=self.limit)
            with rw.using() as request:
                self.edited += rw.respond(inputs, max_new_tokens=self.limit)
            self.evidence += request.evidence

    def attach(self, **options: Any) -> Any:
        """ReWEIGH on the mlx-vlm model."""
        return reweigh.attach(*self.mlx, **{"table": self.table, "beta": self.beta, **options})


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Both]:
    """Every family, and the embedded model with the tower's fast activation on both sides."""
    from released import FAMILIES, build

    made = {}
    for family in FAMILIES:
        folder = build(family, tmp_path_factory.mktemp(family))
        sizes = ((56, 56),) if family == "llava" else SIZES
        shown = [picture(seed, sizes[seed % len(sizes)]) for seed in range(4)]
        corpus = [(f"{seed}", picture(seed, sizes[seed % len(sizes)])) for seed in range(100, 110)]
        made[family] = Both(folder, *load(folder), shown)
        made[family].answer(corpus, "count-2")
    folder = tmp_path_factory.mktemp("world")
    shutil.copytree(path(), folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"]["hidden_act"] = "quick_gelu"
    (folder / "config.json").write_text(json.dumps(config))
    weights = {name: value.float() for name, value in load_file(folder / "model.safetensors").items()}
    save_file(
        weights, folder / "model.safetensors", metadata={"format": "pt"}
    )  # MLX computes as it is stored
    shown = [scene.image() for scene in scenes("evaluation", 6)]
    corpus = [(f"{number}", scene.image()) for number, scene in enumerate(scenes("calibration", 24))]
    world = made["world"] = Both(
        folder, *load_model(folder, device="cpu"), shown, layer=2, beta=3.5, limit=40
    )
    world.answer(corpus, "count-2")
    from mlx_vlm import load as load_mlx

    from reweigh.engines.mlx.model import find_anatomy
    from reweigh.engines.opening import engine_of

    for family, both in made.items():
        both.mlx = load_mlx(str(both.folder))
        if family != "llava_next":  # refused
            anatomy = find_anatomy(*both.mlx)
            both.inputs = [engine_of(anatomy, both.mlx[1]).inputs([one], [QUESTION]) for one in both.pictures]
    return made
