"""Calibration's view of an mlx-vlm model: a greedy description, the candidates of every step, the image's evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reweigh.engines.mlx.generation import answer_of
from reweigh.engines.mlx.hooks import MlxHooks
from reweigh.engines.mlx.model import MlxAnatomy
from reweigh.engines.transformers.observe import StepObserver, observations_of, observing_reader
from reweigh.method.lens import Lens
from reweigh.tables.observations import ImageObservations


def observe_row(
    anatomy: MlxAnatomy,
    processor: Any,
    lens: Lens,
    layers: Sequence[int],
    key: str,
    row: Mapping[str, Any],
    settings: Any,
) -> ImageObservations:
    """Decode one row greedily and turn it into observations."""
    observer = StepObserver(anatomy, observing_reader(lens, layers, settings.readout, settings.kernel))
    with MlxHooks.of(anatomy).serving(observer.request()):
        said = answer_of(anatomy.model, processor, row, max_tokens=settings.max_new_tokens)
    return observations_of(observer, [key], [len(said.tokens)])[0]  # mlx-vlm computes a step ahead
