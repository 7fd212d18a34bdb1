"""The identity of a checkpoint on disk, without loading its weights; for other engines than transformers.

The model's class is built without values to learn the names its weights have in transformers; a few values of each are
then read from the checkpoint's files. Files name the same weights in other ways (``language_model.model.layers.0`` for
``model.language_model.layers.0``), so both are compared without the parts that only wrap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import Anatomy, find_anatomy
from reweigh.families.identity import describe
from reweigh.families.weights import sample
from reweigh.tables.identity import Identity
from reweigh.tables.signature import BYTES, Sampled

WRAPPERS = frozenset({"model", "language_model", "vision_model", "text_model"})
"""Parts of weight names that differ between files and classes."""

HEADS = ("lm_head.weight", "embed_tokens.weight")


def identify_stored(folder: Path, config: Any, processor: Any, *, name: str = "") -> Identity:
    """The identity that a transformers model loaded from ``folder`` would have.

    Raises:
        UnsupportedError: The folder holds no safetensors, or weights of the model are not among them.
    """
    anatomy = empty_model(config)
    with ExitStack() as files:
        stored = {key: (sample(tensor, BYTES), tuple(tensor.shape)) for key, tensor in _stored(folder, files)}
    samples, absent = match_names(anatomy, stored)
    if absent:
        raise UnsupportedError(
            f"{len(absent)} weights of {type(anatomy.model).__name__} are missing from the checkpoint's files, "
            f"e.g. {absent[0]}, so a table cannot be matched to it",
            hint="use force if you know that the table belongs to these weights",
        )
    return describe(anatomy, processor, samples, model_id=name or str(folder))


def empty_model(config: Any) -> Anatomy:
    """The parts of a model of this configuration, without values."""
    from transformers import AutoModelForImageTextToText

    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(config)
    return find_anatomy(model)


def match_names(anatomy: Anatomy, stored: Mapping[str, Sampled]) -> tuple[dict[str, Sampled], list[str]]:
    """Samples by plain name under the names that weights have in transformers, and the names that have none."""
    found: dict[str, Sampled] = {}
    absent = []
    for name in anatomy.model.state_dict():
        own = plain_name(name)
        sampled = stored.get(own)
        if sampled is None and own == HEADS[0]:  # tied: stored once, as the embedding
            sampled = stored.get(HEADS[1])
        if sampled is None:
            absent.append(name)
        else:
            found[name] = sampled
    return found, absent


def _stored(folder: Path, files: ExitStack) -> Iterator[tuple[str, Tensor]]:
    from safetensors import safe_open

    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise UnsupportedError(
            f"{folder} has no safetensors, so a table cannot be matched to its weights",
            hint="convert the checkpoint, or use force if you know that the table belongs to it",
        )
    for path in paths:
        opened = files.enter_context(safe_open(path, framework="pt"))
        for name in opened.keys():  # noqa: SIM118  # not a mapping
            yield plain_name(name), opened.get_tensor(name)


def plain_name(name: str) -> str:
    """The name of a weight without the parts that only wrap."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)
