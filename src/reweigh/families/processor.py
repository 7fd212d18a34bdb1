"""A model's processor: loading it, even if its video half cannot be loaded, and its parts; of text-only models a tokenizer.

Several families (Qwen-VL, InternVL and others) bundle a video processor that transformers can only build with
torchvision, so `AutoProcessor` refuses the whole bundle although images do not need it. Without torchvision
the same processor class is assembled here from its other parts; it then knows images and text only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from reweigh.errors import UnsupportedError
from reweigh.files.artifacts import sha256_json


def load_processor(name_or_path: str | os.PathLike[str], **options: Any) -> Any:
    """Load a checkpoint's processor; ``options`` go to ``from_pretrained`` (``revision``, ``token``, ...)."""
    from transformers import AutoConfig, AutoProcessor
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING
    from transformers.utils import is_torchvision_available

    if not is_torchvision_available():
        config = AutoConfig.from_pretrained(name_or_path, **options)
        declared = PROCESSOR_MAPPING.get(type(config), None)
        if declared is not None and any("video" in part for part in declared.get_attributes()):
            return without_video(declared).from_pretrained(name_or_path, **options)
    return AutoProcessor.from_pretrained(name_or_path, **options)


def processor_of(model: Any) -> Any:
    """Load the processor beside a model, by the name or path it was loaded from; ``None`` if there is none."""
    name = getattr(model, "name_or_path", "")
    try:
        return load_processor(name) if name else None
    except (OSError, ValueError, KeyError, ImportError):  # no such files, or a part that is not installed
        return None


def without_video(processor_class: Any) -> Any:
    """Make a subclass of ``processor_class`` with the same name that refuses videos."""

    class Stills(processor_class):
        @classmethod
        def get_attributes(cls) -> list[str]:
            return [part for part in super().get_attributes() if "video" not in part]

        def __call__(self, images: Any = None, text: Any = None, videos: Any = None, **kwargs: Any) -> Any:
            # transformers would drop the videos silently when the part is missing
            if videos is not None:
                raise UnsupportedError(
                    f"{processor_class.__name__} has no video part here: torchvision is not installed",
                    hint="pip install torchvision, or pass the frames as images",
                )
            return super().__call__(images=images, text=text, **kwargs)

    Stills.__name__ = Stills.__qualname__ = processor_class.__name__
    Stills.__module__ = processor_class.__module__
    return Stills


def tokenizer_of(processor: Any) -> Any:
    """Return the tokenizer of a processor; a bare tokenizer is its own."""
    return getattr(processor, "tokenizer", processor)


def chat_template_of(processor: Any) -> Any:
    """Return the processor's chat template, or ``None``."""
    return getattr(processor, "chat_template", None)


def prompt_hash(processor: Any, prompt: str, template: str | Mapping[str, Any] | None) -> str:
    """Hash of a prompt and its template: the given one, or the processor's with its arguments."""
    if isinstance(template, Mapping) and template:
        return sha256_json([chat_template_of(processor), prompt, dict(template)])
    return sha256_json([template or chat_template_of(processor), prompt])


def resized_pixels(processor: Any, size: tuple[int, int]) -> int:
    """Return the pixels of a picture after the processor's resize, where that depends on the ratio of its sides.

    Processors that only fix the shortest edge enlarge thin pictures without bound; all others bound the result.
    """
    images = getattr(processor, "image_processor", None)
    wanted = dict(getattr(images, "size", None) or {})
    shortest = wanted.pop("shortest_edge", None)
    if not getattr(images, "do_resize", False) or shortest is None or any(wanted.values()):
        return 0
    return int(size[0] * size[1] * (shortest / min(size)) ** 2)


def crops_center(processor: Any) -> bool:
    """Whether the image processor keeps only the center square of a picture."""
    return bool(getattr(getattr(processor, "image_processor", None), "do_center_crop", False))
