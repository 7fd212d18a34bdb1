"""Which families are served inside vLLM, and which positions of a request's prompt carry image content.

A family is served when its tokens were compared with the transformers engine's; every other one is refused by name.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from reweigh.errors import UnsupportedError
from reweigh.families.catalogue import family_of
from reweigh.families.positions import layout

SERVED = ("llava", "llava_next", "qwen2_5_vl", "internvl", "gemma3")
"""By ``model_type``, as the configuration of the checkpoint gives it."""

REASONS = {
    "instructblip": "vLLM does not know InstructBLIP",
    "blip-2": "its decoder keeps its blocks elsewhere in vLLM, and has not been compared",
    "qwen3_vl": "vLLM hands out its states after DeepStack's addition, which has not been compared",
}
GEMMA_ON_CPU = (
    "vLLM's CPU attention ignores that the positions of a Gemma 3 image see each other, so neither its states nor its "
    "text are the model's"
)


def check_family(config: Any, *, on_cpu: bool) -> None:
    """Refuse a family that is not served, with the reason."""
    name = str(getattr(config, "model_type", ""))
    known = family_of(config).refused or REASONS.get(name)
    if name not in SERVED or known:
        raise UnsupportedError(
            f"reweigh does not serve {name or 'this model'} inside vLLM: {known or 'it has not been compared'}",
            hint=f"served: {', '.join(SERVED)}; use the transformers engine (reweigh.attach) for other families",
        )
    if name == "gemma3" and on_cpu:
        raise UnsupportedError(
            f"reweigh does not serve gemma3 on this CPU: {GEMMA_ON_CPU}",
            hint="serve it on a GPU, or use the transformers engine (reweigh.attach)",
        )


class Sizes:
    """The sizes of images that were seen, by vLLM's identifier: it hands over no image that its prefix cache covers."""

    def __init__(self, limit: int = 1 << 16) -> None:
        self.limit = limit
        self._known: OrderedDict[str, Tensor] = OrderedDict()

    def of(self, feature: Any) -> Tensor:
        """Height and width of an image."""
        size = None if feature.data is None else feature.data.get("image_sizes")
        if size is not None and getattr(size, "data", None) is not None:
            self._known[feature.identifier] = torch.as_tensor(size.data).flatten()[-2:].clone()
            if len(self._known) > self.limit:
                self._known.popitem(last=False)
        if feature.identifier not in self._known:
            raise UnsupportedError(
                "the size of its image is unknown, because the image was in the prefix cache"
            )
        self._known.move_to_end(feature.identifier)
        return self._known[feature.identifier]


def visual_positions(config: Any, tokens: Sequence[int], features: Sequence[Any], sizes: Sizes) -> list[int]:
    """Positions P of a prompt, ascending, from vLLM's multi-modal features.

    vLLM marks what is replaced by embeddings. Where control features (newlines) are among those, the family's own
    layout tells them apart; it needs the size of each image, which vLLM hands over with the image.
    """
    family = family_of(config)
    if family.has_controls:
        inputs = {"image_sizes": torch.stack([sizes.of(feature) for feature in features])}
        found = layout(family, config, torch.tensor([list(tokens)]), inputs)[0]
        return [column for column, _ in found]
    return sorted(position for feature in features for position in _embedded(feature.mm_position))


def _embedded(place: Any) -> list[int]:
    if place.is_embed is None:
        return list(range(place.offset, place.offset + place.length))
    return [place.offset + int(index) for index in place.is_embed.nonzero().flatten().tolist()]


def decoder_of(model: Any) -> Any:
    """The part of a vLLM model that holds ``layers`` and the final ``norm``."""
    language_model = model.get_language_model()
    holder = getattr(language_model, "model", language_model)
    if not (hasattr(holder, "layers") and hasattr(holder, "norm")):
        raise UnsupportedError(
            f"{type(model).__name__} keeps its blocks and final norm where they are not known",
            hint="use the transformers engine (reweigh.attach)",
        )
    return holder
