"""Calibrate an mlx-vlm model row by row, with the settings and observations of the transformers engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reweigh.calibration.job import TransformersJob, stored_greedy_settings
from reweigh.engines.base import Watcher
from reweigh.engines.mlx.generation import answer_of, build_row
from reweigh.engines.mlx.hooks import MlxHooks
from reweigh.engines.mlx.model import checkpoint_folder
from reweigh.engines.transformers.observe import StepObserver
from reweigh.tables.observations import ImageObservations


@dataclass(frozen=True)
class MlxJob(TransformersJob):
    """An mlx-vlm model and its processor tied to the settings of a calibration."""

    anatomy: Any
    engine = "mlx"

    def generation(self) -> dict[str, Any]:
        """Refuse a checkpoint whose settings change greedy decoding."""
        return stored_greedy_settings(checkpoint_folder(self.processor), "mlx-vlm")

    def inputs(self, pictures: Sequence[Any]) -> dict[str, Any]:
        """Build mlx-vlm's inputs for each picture."""
        prompt, template = self.settings.prompt, self.settings.template
        build = (build_row(self.anatomy, self.processor, one, prompt, template=template) for one in pictures)
        return {"rows": list(build)}

    def observe(self, keys: Sequence[str], inputs: dict[str, Any]) -> list[ImageObservations]:
        """Decode one row after the other greedily and turn each into observations."""
        return [self._observe_row(key, row) for key, row in zip(keys, inputs["rows"], strict=True)]

    def _observe_row(self, key: str, row: Mapping[str, Any]) -> ImageObservations:
        observer, longest = StepObserver(self.reader()), self.settings.max_new_tokens
        watcher = Watcher(self.anatomy, self.layers, observer.see)
        with MlxHooks.of(self.anatomy).serving(watcher.request()):
            said = answer_of(self.anatomy.model, self.processor, row, max_tokens=longest)
        return observer.observations([key], [len(said.tokens)])[0]  # mlx-vlm computes a step ahead
