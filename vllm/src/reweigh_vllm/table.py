"""The table of an engine: opened, and compared with the checkpoint, processor and dtype that vLLM is about to load.

Compared from the checkpoint's files, with the image processor as vLLM will build it: its backend changes pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reweigh_vllm.core import (
    MismatchError,
    ModelKey,
    OperatingPoint,
    ReferenceTable,
    UnsupportedError,
    family_of,
    identify_stored,
    native_rows,
    nearest_point,
    point_in_use,
)
from reweigh_vllm.settings import Settings


@dataclass(frozen=True, slots=True)
class Opened:
    """A table with its fingerprint, and layer and beta of requests that set none."""

    table: ReferenceTable
    sha256: str
    point: OperatingPoint


def open_table(settings: Settings, config: Any) -> Opened:
    """Open the table of an engine for a model's configuration; of several layers, the tuned one, else the paper's."""
    blocks = blocks_of(config)
    near = nearest_point(config.model_type, blocks)
    table = ReferenceTable.from_pretrained(
        str(settings.table), layer=settings.layer, default=None if near is None else near.layer
    )
    found = table.fingerprint
    if settings.sha256 not in (None, found):
        raise MismatchError(
            f"{settings.table} holds a table with the fingerprint {found[:12]}, but "
            f"{str(settings.sha256)[:12]} was asked for",
            hint="it was just replaced, or sha256 names another table; try again",
        )
    if table.about.get("readout", "dmrr") != "dmrr":
        raise UnsupportedError(
            f"{settings.table} is a table of {table.about['readout']}, and vLLM reads DMRR",
            hint="calibrate without a readout",
        )
    return Opened(table, found, point_in_use(config.model_type, blocks, table, settings.beta))


def check_table(opened: Opened, model_config: Any, load_config: Any) -> None:
    """Refuse a table that another model, processor or dtype made, naming both sides."""
    identity = identify_model(model_config, load_config)
    try:
        opened.table.check_pairing(identity, dtype=dtype_of(model_config), rows=rows_of(model_config))
    except MismatchError as error:
        if "image processor's backend" not in error.message:
            raise
        raise MismatchError(
            error.message,
            hint='the backends resize pictures differently; set mm_processor_kwargs={"use_fast": false} for a '
            "table made without torchvision, or calibrate with --engine vllm",
        ) from error


def identify_model(model_config: Any, load_config: Any) -> ModelKey:
    """Identify the model that vLLM will load."""
    from vllm.transformers_utils.processor import cached_processor_from_config

    folder = Path(model_config.model)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download

        folder = Path(
            snapshot_download(
                model_config.model,
                revision=model_config.revision,
                cache_dir=load_config.download_dir,
                allow_patterns=["*.safetensors", "*.json"],
            )
        )
    processor = cached_processor_from_config(model_config)
    found = identify_stored(folder, model_config.hf_config, processor, name=str(model_config.model))
    return replace(found, images=_as_called(found.images, model_config))


def _as_called(images: Mapping[str, Any], model_config: Any) -> dict[str, Any]:
    """Return the image processor's settings, updated with what vLLM passes to it at each call."""
    given = dict(getattr(model_config.multimodal_config, "mm_processor_kwargs", None) or {})
    given |= given.pop("images_kwargs", None) or {}
    return {**images, **{name: value for name, value in given.items() if name in images}}


def dtype_of(model_config: Any) -> str:
    """Return the type in which vLLM runs the model and computes logits."""
    return str(model_config.dtype).removeprefix("torch.")


def rows_of(model_config: Any) -> int:
    """Return how many rows of the head take part in ranks."""
    return native_rows(family_of(model_config.hf_config), model_config.get_vocab_size())


def blocks_of(config: Any) -> int:
    """Return the number of decoder blocks of a configuration."""
    return int(config.get_text_config().num_hidden_layers)
