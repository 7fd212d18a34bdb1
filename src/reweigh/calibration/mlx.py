"""A calibration with a model of mlx-vlm: the same settings and observations as with transformers, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reweigh.calibration.job import TransformersJob, greedy_settings
from reweigh.engines.mlx.generation import build_row
from reweigh.engines.mlx.model import checkpoint_folder
from reweigh.engines.mlx.observe import observe_row
from reweigh.errors import UnsupportedError
from reweigh.tables.observations import ImageObservations


@dataclass(frozen=True)
class MlxJob(TransformersJob):
    """The settings of a calibration tied to a model of mlx-vlm."""

    anatomy: Any

    def made_by(self) -> dict[str, Any]:
        """Names the engine."""
        return {"engine": "mlx"}

    def generation(self) -> dict[str, Any]:
        """Nothing: a checkpoint whose settings change greedy decoding is refused."""
        from transformers import GenerationConfig

        try:
            found = greedy_settings(GenerationConfig.from_pretrained(checkpoint_folder(self.processor)))
        except OSError:  # it has none
            return {}
        if found:
            raise UnsupportedError(
                f"the checkpoint decodes greedily with {', '.join(found)}, which mlx-vlm does not do as transformers does",
                hint="calibrate with the transformers engine",
            )
        return {}

    def inputs(self, pictures: Sequence[Any]) -> dict[str, Any]:
        """mlx-vlm's inputs of each picture."""
        prompt, template = self.settings.prompt, self.settings.template
        build = (build_row(self.anatomy, self.processor, one, prompt, template=template) for one in pictures)
        return {"rows": list(build)}

    def observe(self, keys: Sequence[str], inputs: dict[str, Any]) -> list[ImageObservations]:
        """Decode one row after the other greedily and turn each into its observations."""
        return [
            observe_row(self.anatomy, self.processor, self.lens, self.layers, key, row, self.settings)
            for key, row in zip(keys, inputs["rows"], strict=True)
        ]
