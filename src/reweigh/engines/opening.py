"""The engine of a loaded model."""

from __future__ import annotations

from typing import Any

from reweigh.engines.base import Engine
from reweigh.families.anatomy import find_anatomy, is_mlx
from reweigh.families.processor import processor_of


def open_engine(model: Any, processor: Any = None) -> Engine:
    """Return the engine of a model of transformers or mlx-vlm.

    Args:
        processor: Its processor. If not given, the one stored with a transformers model, if there is one.
    """
    if is_mlx(model):
        from reweigh.engines.mlx.model import find_anatomy as find_mlx

        return engine_of(find_mlx(model, processor), processor)
    return engine_of(find_anatomy(model), processor_of(model) if processor is None else processor)


def engine_of(anatomy: Any, processor: Any) -> Engine:
    """Return the engine of a model whose parts are known."""
    if is_mlx(anatomy.model):
        from reweigh.engines.mlx.engine import MlxEngine

        return MlxEngine(anatomy, processor)
    from reweigh.engines.transformers.engine import TransformersEngine

    return TransformersEngine(anatomy, processor)
