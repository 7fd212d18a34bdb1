"""Whether a table belongs to what vLLM is about to load: checkpoint, tokenizer, image processor and dtype.

Compared from the checkpoint's files, with the image processor as vLLM will build it: its backend changes pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from reweigh.engines.vllm.config import Settings
from reweigh.errors import MismatchError
from reweigh.families.points import nearest_point, point_in_use
from reweigh.families.stored import identify_stored
from reweigh.tables.identity import Identity
from reweigh.tables.point import OperatingPoint
from reweigh.tables.table import ReferenceTable


def check_table(table: ReferenceTable, model_config: Any, load_config: Any, *, force: bool) -> None:
    """Refuse a table that another model, processor or dtype made, naming both sides."""
    if force:
        return
    identity = identify_model(model_config, load_config)
    try:
        table.check_pairing(identity, dtype=dtype_of(model_config))
    except MismatchError as error:
        if "image processor's backend" in error.message:
            raise MismatchError(
                error.message,
                hint='the backends resize pictures differently; give mm_processor_kwargs={"use_fast": false} for a '
                "table made without torchvision, or calibrate with --engine vllm",
            ) from error
        raise


def open_table(settings: Settings, config: Any) -> ReferenceTable:
    """The table that the settings name; of several layers the tuned one, then the paper's."""
    if settings.table is None:
        raise MismatchError("no table is configured")
    near = nearest_point(config.model_type, blocks_of(config))
    table = ReferenceTable.from_pretrained(
        settings.table, layer=settings.layer, default=None if near is None else near.layer
    )
    if settings.sha256 not in (None, table.fingerprint):
        raise MismatchError(
            f"{settings.table} holds a table with the fingerprint {table.fingerprint[:12]}, but "
            f"{str(settings.sha256)[:12]} was asked for",
            hint="it was replaced while the engine started, or sha256 names another table; start the engine again",
        )
    return table


def point_of(table: ReferenceTable, settings: Settings, config: Any) -> OperatingPoint:
    """Layer and beta of requests that name none, and where they come from."""
    return point_in_use(config.model_type, blocks_of(config), table, settings.beta)


def identify_model(model_config: Any, load_config: Any) -> Identity:
    """The identity of what vLLM will load."""
    from vllm.transformers_utils.processor import cached_processor_from_config

    folder = _folder(model_config, load_config)
    processor = cached_processor_from_config(model_config)
    found = identify_stored(folder, model_config.hf_config, processor, name=str(model_config.model))
    return replace(found, images=_as_called(found.images, model_config))


def _as_called(images: Mapping[str, Any], model_config: Any) -> dict[str, Any]:
    """The image processor's settings, updated with what vLLM passes to it at each call."""
    multimodal = model_config.multimodal_config
    given = dict(getattr(multimodal, "mm_processor_kwargs", None) or {})
    given |= given.pop("images_kwargs", None) or {}
    return {**images, **{name: value for name, value in given.items() if name in images}}


def dtype_of(model_config: Any) -> str:
    """The type in which vLLM runs the model, and so that of its logits."""
    return str(model_config.dtype).removeprefix("torch.")


def blocks_of(config: Any) -> int:
    """Decoder blocks of a configuration."""
    return int(config.get_text_config().num_hidden_layers)


def _folder(model_config: Any, load_config: Any) -> Path:
    if Path(model_config.model).is_dir():
        return Path(model_config.model)
    from huggingface_hub import snapshot_download

    return Path(
        snapshot_download(
            model_config.model,
            revision=model_config.revision,
            cache_dir=load_config.download_dir,
            allow_patterns=["*.safetensors", "*.json"],
        )
    )
