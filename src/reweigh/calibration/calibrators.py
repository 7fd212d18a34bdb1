"""A model of each engine tied to the settings of a calibration: it builds inputs and observes batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, ClassVar, Protocol

from reweigh.calibration.settings import (
    CalibrationSettings,
    greedy_settings,
    layers_to_read,
    record_of,
    stored_greedy_settings,
)
from reweigh.engines.base import Engine, Watcher
from reweigh.engines.opening import engine_of
from reweigh.engines.reader import Reader
from reweigh.engines.transformers.observe import StepObserver, observe
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import Anatomy, find_anatomy, is_mlx
from reweigh.families.points import published_point
from reweigh.families.prompts import build_inputs
from reweigh.method.lens import Lens
from reweigh.method.readouts import DMRR, READOUTS
from reweigh.tables.observations import ImageObservations

ENGINES = "reweigh.engines"
"""Entry-point group of engines that other distributions offer."""


class Calibrator(Protocol):
    """A model tied to the settings of a calibration."""

    def about(self) -> dict[str, Any]:
        """Return what all parts of this calibration share, and every table carries."""

    def inputs(self, pictures: Sequence[Any]) -> dict[str, Any]:
        """Build the engine's inputs for some pictures; raise for a picture it cannot take."""

    def observe(self, keys: Sequence[str], inputs: dict[str, Any]) -> list[ImageObservations]:
        """Decode one batch greedily and turn it into observations, one per row."""


@dataclass(frozen=True)
class TransformersCalibrator:
    """A transformers model and its processor."""

    model: Any
    processor: Any
    anatomy: Anatomy
    lens: Lens
    layers: tuple[int, ...]
    settings: CalibrationSettings

    engine: ClassVar[str | None] = None

    def about(self) -> dict[str, Any]:
        """Return what all parts of this calibration share, and every table carries."""
        lens = {name: getattr(self.lens, name) for name in ("dtype", "chunk", "rows")}
        return record_of(
            self.settings,
            self.processor,
            identity=self.anatomy.identify(self.processor),
            layers=self.layers,
            lens={"lens": self.lens.mode, **lens},
            generation=self.generation(),
            engine=self.engine,
        )

    def generation(self) -> dict[str, Any]:
        """Return the checkpoint's own settings that change greedy decoding."""
        return greedy_settings(self.anatomy.language_model.generation_config)

    def inputs(self, pictures: Sequence[Any]) -> dict[str, Any]:
        """Build the model's inputs for some pictures."""
        prompts = [self.settings.prompt] * len(pictures)
        return build_inputs(self.model, self.processor, pictures, prompts, template=self.settings.template)

    def observe(self, keys: Sequence[str], inputs: dict[str, Any]) -> list[ImageObservations]:
        """Decode one batch greedily and turn it into observations, one per row."""
        return observe(self.anatomy, self.reader(), keys, inputs, max_new_tokens=self.settings.max_new_tokens)

    def reader(self) -> Reader:
        """Return what reads the evidence; a matched readout keeps DMRR beside it."""
        readout = self.settings.readout
        readouts = (readout, DMRR) if READOUTS[readout].matched else (readout,)
        return Reader(self.lens, self.layers, readouts=readouts)


class MlxCalibrator(TransformersCalibrator):
    """An mlx-vlm model and its processor; rows are decoded one after the other."""

    anatomy: Any
    engine = "mlx"

    def generation(self) -> dict[str, Any]:
        """Refuse a checkpoint whose settings change greedy decoding."""
        from reweigh.engines.mlx.model import checkpoint_folder

        return stored_greedy_settings(checkpoint_folder(self.processor), "mlx-vlm")

    def _engine(self) -> Engine:
        return engine_of(self.anatomy, self.processor)

    def inputs(self, pictures: Sequence[Any]) -> dict[str, Any]:
        """Build mlx-vlm's inputs for each picture."""
        engine, prompt, template = self._engine(), self.settings.prompt, self.settings.template
        return {"rows": [engine.inputs([one], [prompt], template=template) for one in pictures]}

    def observe(self, keys: Sequence[str], inputs: dict[str, Any]) -> list[ImageObservations]:
        """Decode one row after the other greedily and turn each into observations."""
        return [self._observe_row(key, row) for key, row in zip(keys, inputs["rows"], strict=True)]

    def _observe_row(self, key: str, row: Mapping[str, Any]) -> ImageObservations:
        engine, observer = self._engine(), StepObserver(self.reader())
        with engine.passes(Watcher(self.anatomy, self.layers, observer.see).run()):
            [said] = engine.answers(row, max_new_tokens=self.settings.max_new_tokens)
        return observer.observations([key], [len(said.tokens)])[0]  # mlx-vlm computes a step ahead


def open_calibrator(model: Any, processor: Any, settings: CalibrationSettings) -> Calibrator:
    """Tie a loaded model to the settings of a calibration, refusing layers that it does not have."""
    kind: type[TransformersCalibrator] = TransformersCalibrator
    if is_mlx(model):
        from reweigh.engines.mlx.model import find_anatomy as find_mlx

        kind = MlxCalibrator
        anatomy: Anatomy = find_mlx(model, processor)
    else:
        anatomy = find_anatomy(model)
    layers = layers_to_read(settings, published_point(anatomy))
    blocks = tuple(sorted({anatomy.check_layer(layer) for layer in layers}))
    lens = anatomy.lens(dtype=settings.dtype, chunk=settings.chunk)
    return kind(model, processor, anatomy, lens, blocks, settings)


def outside_engine(name: str) -> Any:
    """Return the calibrator that another distribution offers, e.g. ``reweigh-vllm``'s for "vllm"."""
    for entry in entry_points(group=ENGINES, name=name):
        return entry.load()
    raise UnsupportedError(
        f"no installed package offers the engine {name}",
        hint=f"pip install ./{name}, in the folder of reweigh's source and in an environment of its own",
    )
