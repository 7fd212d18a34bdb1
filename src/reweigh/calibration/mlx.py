"""A calibration with a model of mlx-vlm: the same settings and observations as with transformers, row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reweigh.calibration.job import TransformersJob, greedy_settings
from reweigh.engines.mlx.generation import answer_of, build_row
from reweigh.engines.mlx.hooks import MlxHooks
from reweigh.engines.mlx.model import checkpoint_folder
from reweigh.engines.transformers.observe import StepObserver, observations_of, observing_reader
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
        return [self._observe_row(key, row) for key, row in zip(keys, inputs["rows"], strict=True)]

    def _observe_row(self, key: str, row: Mapping[str, Any]) -> ImageObservations:
        settings = self.settings
        reader = observing_reader(self.lens, self.layers, settings.readout, settings.kernel)
        observer = StepObserver(self.anatomy, reader)
        with MlxHooks.of(self.anatomy).serving(observer.request()):
            said = answer_of(self.anatomy.model, self.processor, row, max_tokens=settings.max_new_tokens)
        return observations_of(observer, [key], [len(said.tokens)])[0]  # mlx-vlm computes a step ahead
