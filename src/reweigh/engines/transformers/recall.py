"""Evidence recalled: a picture asked about again is not measured again.

The key of a vector holds everything that can change a bit of it: picture, the prompt up to the image, the shapes of its
batch (padding, length and batch size change the rounding of a product), layer, tokens, and the model as it is loaded.
Another question of the same length about a picture finds its evidence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reweigh.artifacts import sha256_json
from reweigh.engines.cache import EvidenceCache
from reweigh.families.anatomy import Anatomy
from reweigh.families.identity import reading_hash
from reweigh.method.measure.evidence import Evidence

if TYPE_CHECKING:
    from PIL.Image import Image

    from reweigh.decoders.reweigh import ReweighAttachment


OF_THE_PROMPT = frozenset({"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"})
"""Inputs that go with the prompt's tokens one by one; others (image grids, a Q-Former's question) count as a whole."""


class Recall:
    """What an attachment remembers of pictures, in a cache that others may share."""

    def __init__(self, attached: ReweighAttachment, cache: EvidenceCache) -> None:
        method = attached.decoder
        self.attached = attached
        self.cache = cache
        reading = {
            "reading": reading_hash(method.anatomy, attached.processor),
            "layer": method.table.layer,
            "dtype": method.lens.dtype,
            "chunk": method.lens.chunk,
        }
        tokens = method.table.tokens.tolist()
        has_all = len(tokens) == method.anatomy.vocab_size
        self._every = sha256_json({**reading, "tokens": None})
        self._own = sha256_json({**reading, "tokens": None if has_all else tokens})

    def keys(self, pictures: Sequence[Image], inputs: Mapping[str, Any]) -> list[str]:
        """What each row's evidence depends on, the model and the tokens aside."""
        return row_keys(self.attached.decoder.anatomy, pictures, inputs)

    def get(self, key: str) -> Tensor | None:
        """The evidence of one row: that of the registered tokens, or theirs out of the whole vocabulary's."""
        found = self.cache.get(sha256_json([self._own, key]))
        if found is not None or self._own == self._every:
            return found
        every = self.cache.get(sha256_json([self._every, key]))
        return None if every is None else every[self.attached.decoder.tokens]

    @contextmanager
    def serving(self, pictures: Sequence[Image], inputs: Mapping[str, Any]) -> Iterator[None]:
        """While open, a generation about these pictures takes its evidence from the cache, or fills the cache."""
        keys = self.keys(pictures, inputs)
        known = [self.get(key) for key in keys]
        if all(one is not None for one in known):
            with self.attached.using([self._evidence(one) for one in known]):
                yield
            return
        with self.attached.noting() as noted:
            yield
        for key, found in zip(keys, noted, strict=True):
            if found is not None:
                self.cache.put(sha256_json([self._own, key]), found.at(self.attached.layer))

    def _evidence(self, values: Any) -> Evidence:
        method = self.attached.decoder
        return Evidence(
            layers=(method.table.layer,),
            values=values[None],
            columns=(),
            patches=(),
            dtype=method.lens.dtype,
            tokens=tuple(method.table.tokens.tolist()),
        )


def row_keys(anatomy: Anatomy, pictures: Sequence[Image], inputs: Mapping[str, Any]) -> list[str]:
    """For each row a hash of its picture, of what the model reads up to its last visual position, and of the batch.

    Of a family that may attend to what comes later, all of the row's prompt counts.
    """
    tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    ids = tensors["input_ids"]
    mask = tensors.get("attention_mask", torch.ones_like(ids))
    image = torch.isin(ids, torch.tensor(anatomy.image_tokens, device=ids.device))
    batch = {
        "shapes": {name: list(value.shape) for name, value in tensors.items()},
        "tokens": mask.sum(dim=1).tolist(),
        "sizes": [list(picture.size) for picture in pictures],
    }
    keys = []
    for row, picture in enumerate(pictures):
        columns = image[row].nonzero().flatten().tolist()
        end = columns[-1] + 1 if columns and anatomy.is_causal else ids.shape[1]
        beside = {
            name: (value[row] if len(value) == len(ids) else value).tolist()
            for name, value in tensors.items()
            if not value.is_floating_point() and name not in OF_THE_PROMPT
        }
        read = [ids[row, :end].tolist(), mask[row, :end].tolist(), beside]
        keys.append(sha256_json([_pixels_hash(picture), read, batch]))
    return keys


def _pixels_hash(picture: Image) -> str:
    digest = hashlib.sha256(f"{picture.mode} {picture.size}".encode())
    digest.update(picture.tobytes())
    return digest.hexdigest()
