"""Evidence recalled: a picture asked about again is not measured again.

The key of a vector holds everything that can change a bit of it: picture, prompt, the company in its batch (padding and
batch size change the rounding of a product), layer, tokens, and the model as it is loaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from reweigh.artifacts import sha256_json
from reweigh.families.identity import reading_hash
from reweigh.measure.cache import EvidenceCache
from reweigh.measure.evidence import Evidence

if TYPE_CHECKING:
    from PIL.Image import Image

    from reweigh.intervene.attach import ReweighAttachment


class Recall:
    """What an attachment remembers of pictures, in a cache that others may share."""

    def __init__(self, attached: ReweighAttachment, cache: EvidenceCache) -> None:
        method = attached.decoder
        self.attached = attached
        self.cache = cache
        self._base = sha256_json(
            {
                "reading": reading_hash(method.anatomy, attached.processor),
                "layer": method.table.layer,
                "dtype": method.lens.dtype,
                "chunk": method.lens.chunk,
                "tokens": method.table.tokens.tolist(),
            }
        )

    def keys(self, pictures: Sequence[Image], prompts: Sequence[str], template: str | None) -> list[str]:
        """The key of each picture in this batch."""
        company = [[list(one.size), prompt] for one, prompt in zip(pictures, prompts, strict=True)]
        return [
            sha256_json([self._base, _pixels_hash(one), prompt, template, company])
            for one, prompt in zip(pictures, prompts, strict=True)
        ]

    @contextmanager
    def serving(
        self, pictures: Sequence[Image], prompts: Sequence[str], template: str | None
    ) -> Iterator[None]:
        """While open, a generation about these pictures takes its evidence from the cache, or fills the cache."""
        keys = self.keys(pictures, prompts, template)
        known = [self.cache.get(key) for key in keys]
        if all(one is not None for one in known):
            with self.attached.using([self._evidence(one) for one in known]):
                yield
            return
        with self.attached.noting() as noted:
            yield
        for key, found in zip(keys, noted, strict=True):
            if found is not None:
                self.cache.put(key, found.at(self.attached.layer))

    def _evidence(self, values: Any) -> Evidence:
        method = self.attached.decoder
        return Evidence(
            layers=(method.table.layer,),
            values=values[None],
            columns=(),
            places=(),
            dtype=method.lens.dtype,
            tokens=tuple(method.table.tokens.tolist()),
        )


def _pixels_hash(picture: Image) -> str:
    digest = hashlib.sha256(f"{picture.mode} {picture.size}".encode())
    digest.update(picture.tobytes())
    return digest.hexdigest()
