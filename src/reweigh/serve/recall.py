"""Evidence recalled: a picture that a server is asked about again is not measured again.

The key of a vector holds the picture, the prompt up to the image, the layer, the tokens, and the model as it is loaded. Any
question about a picture with the same text before it finds its evidence, up to the rounding of another batch's shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reweigh.engines.reader import Reader
from reweigh.families.anatomy import Anatomy
from reweigh.families.identity import Watch, reading_hash
from reweigh.files.artifacts import sha256_json
from reweigh.images import pixels_hash
from reweigh.memory import Memory, prompt_keys
from reweigh.method.evidence import Evidence
from reweigh.method.readouts import DMRR

if TYPE_CHECKING:
    from PIL.Image import Image


OF_THE_PROMPT = frozenset({"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"})
"""Inputs that go with the prompt's tokens one by one; others (image grids, a Q-Former's question) count as a whole."""


class Recall:
    """The evidence of the pictures that a model was asked about."""

    def __init__(self, anatomy: Anatomy, processor: Any, cache: Memory) -> None:
        self.anatomy = anatomy
        self.processor = processor
        self.cache = cache
        self._watch = Watch(anatomy.model, processor)
        self._reading = reading_hash(anatomy, processor)

    def keys(self, pictures: Sequence[Image | Sequence[Image]], inputs: Mapping[str, Any]) -> list[str]:
        """Return the keys of the rows' evidence, without model and tokens; a row may hold several pictures."""
        if self._watch.changed() is not None:  # what was kept belongs to the model as it was
            self._watch = Watch(self.anatomy.model, self.processor)
            self._reading = reading_hash(self.anatomy, self.processor)
        return row_keys(self.anatomy, pictures, inputs)

    def find(self, keys: Sequence[str], reader: Reader) -> list[Evidence | None]:
        """Return the cached evidence of each row, for the layer and the tokens that a reader reads."""
        return [self._evidence(self._values(key, reader), reader) for key in keys]

    def nothing(self, reader: Reader) -> Evidence:
        """Return what stands for evidence in a row where nobody reads it."""
        tokens = reader.lens.rows if reader.tokens is None else len(reader.tokens)
        found = self._evidence(torch.zeros(tokens), reader)
        assert found is not None
        return found

    def keep(
        self,
        keys: Sequence[str],
        known: Sequence[Evidence | None],
        measured: Sequence[Evidence | None],
        reader: Reader,
    ) -> None:
        """Keep the evidence of the rows that were not known."""
        own = self._source(reader, reader.tokens)
        for key, before, found in zip(keys, known, measured, strict=True):
            if before is None and found is not None:
                values = found.at(reader.layers[0]).cpu().clone()  # a view would hold all layers
                self.cache.put(sha256_json([own, key]), values, values.nbytes)

    def _values(self, key: str, reader: Reader) -> Tensor | None:
        """Return the vector of one row: that of the reader's tokens, or theirs out of the whole vocabulary's."""
        own, every = self._source(reader, reader.tokens), self._source(reader, None)
        found: Tensor | None = self.cache.get(sha256_json([own, key]))
        if found is not None or own == every or reader.tokens is None:
            return found
        whole: Tensor | None = self.cache.get(sha256_json([every, key]))
        return None if whole is None else whole[reader.tokens]

    def _source(self, reader: Reader, tokens: Tensor | None) -> str:
        """Hash where a vector comes from: model, layer, lens, readout and tokens."""
        lens = reader.lens
        has_all = tokens is None or len(tokens) == lens.rows
        return sha256_json(
            {
                "reading": self._reading,
                "layer": reader.layers[0],
                "dtype": lens.dtype,
                "chunk": lens.chunk,
                "tokens": None if has_all or tokens is None else tokens.tolist(),
                **({} if reader.readouts == (DMRR,) else {"readout": reader.readouts[0]}),
            }
        )

    def _evidence(self, values: Tensor | None, reader: Reader) -> Evidence | None:
        if values is None:
            return None
        tokens = reader.tokens
        return Evidence(
            layers=reader.layers,
            values=values[None],
            positions=(),
            patches=(),
            dtype=reader.lens.dtype,
            tokens=None if tokens is None else tuple(tokens.tolist()),
            readout=reader.readouts[0],
        )


def row_keys(
    anatomy: Anatomy, pictures: Sequence[Image | Sequence[Image]], inputs: Mapping[str, Any]
) -> list[str]:
    """Hash each row's pictures, and what the model reads up to its last visual position.

    Of a family that may attend to what comes later, all of the row's prompt counts.
    """
    tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    ids = tensors["input_ids"]
    mask = tensors.get("attention_mask", torch.ones_like(ids))
    image = torch.isin(ids, torch.tensor(anatomy.image_tokens, device=ids.device))
    shown = [list(own) if isinstance(own, Sequence) else [own] for own in pictures]
    keys = []
    for row, own in enumerate(shown):
        columns = image[row].nonzero().flatten().tolist()
        first = columns[0] if columns else 0
        end = columns[-1] + 1 if columns and anatomy.is_causal else ids.shape[1]
        beside = {
            name: (value[row] if len(value) == len(ids) else value).tolist()
            for name, value in tensors.items()
            if not value.is_floating_point() and name not in OF_THE_PROMPT
        }
        shows = (" ".join(map(pixels_hash, own)), first, end - first)
        key = prompt_keys(ids[row].tolist(), [shows])[-1]
        keys.append(sha256_json([key, mask[row, :end].tolist(), beside]))
    return keys
