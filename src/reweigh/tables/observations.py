"""Calibration observations: the multisets D_v (Eq. calibration-multiset), kept per image and therefore additive.

DMRR_I(v) is one value per image and token, so an image contributes (token, value, times it was a candidate). Shards
that were calibrated separately merge to exactly the whole, in any order, and any rule, size or layer can be registered
later.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import ArtifactError, InputError, MismatchError
from reweigh.files.artifacts import sha256_json
from reweigh.method.matching import Profile, match_scale, mean_edit
from reweigh.method.readouts import DMRR, READOUTS
from reweigh.method.references import Match, References, Rule, register, stable

ARRAYS = ("image", "token", "count", "values")
RANKS = "dmrr"
"""The DMRR beside another readout, in a row of observations."""
KINDS = {"token": "<i4", "count": "<i4", "values": "<f4", RANKS: "<f4"}


@dataclass(frozen=True)
class Observations:
    """What a set of images showed, image by image.

    Attributes:
        layers: Blocks read, 0-based.
        images: A key for each image, ascending; it names the image and its content.
        image: (n,) index into ``images``, ascending.
        token: (n,) token id, ascending within an image.
        count: (n,) decoding steps at which the token was a candidate.
        values: (L, n) evidence of that token in that image at each layer, float32.
        readout: What the evidence is; DMRR unless another readout was calibrated.
        ranks: (L, n) DMRR of the same occurrences, where the readout's scale is matched to it.
    """

    layers: tuple[int, ...]
    images: tuple[str, ...]
    image: NDArray[np.int32]
    token: NDArray[np.int32]
    count: NDArray[np.int32]
    values: NDArray[np.float32]
    readout: str = DMRR
    ranks: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return int(self.count.sum())

    @property
    def image_count(self) -> int:
        """How many images were observed."""
        return len(self.images)

    @property
    def corpus(self) -> str:
        """Hash of which images were observed, whatever their order."""
        return sha256_json(sorted(self.images))

    def register(self, layer: int, *, rule: Rule = stable) -> References:
        """Register the references of one layer under a rule."""
        row = self._row(layer)
        match = self.match(layer, rule=rule)
        return register(self.token, self.values[row], self.count, rule=rule, match=match)

    def match(self, layer: int, *, rule: Rule = stable) -> Match | None:
        """Match the scale so that the mean edit equals DMRR's; ``None`` where b0 is the pooled median."""
        if not READOUTS[self.readout].matched:
            return None
        row = self._row(layer)
        if self.ranks is None:
            raise ArtifactError(
                f"these observations of {self.readout} lack the DMRR that its scale is matched to",
                hint="calibrate again",
            )
        ranked = register(self.token, self.ranks[row], self.count, rule=rule)
        target = mean_edit(self.token, self.ranks[row], self.count, ranked)
        return match_scale(Profile(self.token, self.values[row], self.count, rule=rule), target)

    def _row(self, layer: int) -> int:
        if layer not in self.layers:
            known = ", ".join(map(str, self.layers))
            raise InputError(f"layer {layer} was not calibrated", hint=f"calibrated: {known}")
        return self.layers.index(layer)

    def at(self, layers: Iterable[int]) -> Observations:
        """Return the observations of some of the layers."""
        wanted = sorted(set(layers))
        rows = [self._row(layer) for layer in wanted]
        ranks = None if self.ranks is None else self.ranks[rows]
        return replace(self, layers=tuple(wanted), values=self.values[rows], ranks=ranks)

    def only(self, keys: Iterable[str]) -> Observations:
        """Return the observations of some of the images."""
        wanted = set(keys)
        unknown = sorted(wanted - set(self.images))
        if unknown:
            raise InputError(f"{len(unknown)} images were not observed, e.g. {unknown[0]!r}")
        chosen = np.array([key in wanted for key in self.images], dtype=bool)
        rows = chosen[self.image]
        renumbered = (np.cumsum(chosen) - 1).astype(np.int32)
        images = tuple(key for key in self.images if key in wanted)
        return replace(
            self,
            images=images,
            image=renumbered[self.image[rows]],
            token=self.token[rows],
            count=self.count[rows],
            values=self.values[:, rows],
            ranks=None if self.ranks is None else self.ranks[:, rows],
        )

    def problem(self) -> str | None:
        """Return why these are invalid, or ``None``: shares lie in (0, 1], counts are positive, rows are in order."""
        n = self.image.shape
        if (
            len(n) != 1
            or not self.token.shape == self.count.shape == n
            or any(one.shape != (len(self.layers), *n) for one in self._evidence())
        ):
            return "its columns have different lengths"
        if any(one.dtype != np.float32 for one in self._evidence()) or any(
            column.dtype != np.int32 for column in (self.image, self.token, self.count)
        ):
            return "its columns have unexpected types"
        if list(self.images) != sorted(set(map(str, self.images))):
            return "its images are not in order"
        if n[0] and not 0 <= int(self.image.min()) <= int(self.image.max()) < len(self.images):
            return f"it refers to image {int(self.image.max()) + 1} of {len(self.images)}"
        step = np.diff(self.image.astype(np.int64) * 2**32 + self.token)
        if (self.token < 0).any() or (step <= 0).any():
            return "its tokens are not in order"
        if (self.count < 1).any():
            return "a count is not positive"
        if not all(np.isfinite(one).all() for one in self._evidence()):
            return "evidence is not finite"
        shares = [self.values] if READOUTS[self.readout].is_share else []
        if not all(((one > 0) & (one <= 1)).all() for one in [*shares, *self._evidence()[1:]]):
            return "evidence lies outside (0, 1]"
        return None

    def _evidence(self) -> list[NDArray[np.float32]]:
        return [self.values] if self.ranks is None else [self.values, self.ranks]


@dataclass(frozen=True)
class ImageObservations:
    """What one image showed: distinct candidate tokens, how often, and their evidence at each layer."""

    key: str
    token: NDArray[np.int64]
    count: NDArray[np.int64]
    values: NDArray[np.float32]
    ranks: NDArray[np.float32] | None = None

    def to_row(self) -> dict[str, str]:
        """Return the image's row in a job: its numbers as base64, little-endian."""
        columns: dict[str, NDArray[Any]] = {"token": self.token, "count": self.count, "values": self.values}
        columns |= {} if self.ranks is None else {RANKS: self.ranks}
        return {"image": self.key, **{name: _pack(name, column) for name, column in columns.items()}}

    @classmethod
    def of_row(cls, row: Mapping[str, Any], layers: Sequence[int], path: str | Path) -> ImageObservations:
        """Read a row; ``path`` names its file in a message."""
        try:
            token, count, values = (_unpack(name, row[name]) for name in ARRAYS[1:])
            ranks = _unpack(RANKS, row[RANKS]) if RANKS in row else None
            shape = len(layers), len(token)
            return cls(
                str(row["image"]),
                token.astype(np.int64),
                count.astype(np.int64),
                values.reshape(shape),
                None if ranks is None else ranks.reshape(shape),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(
                f"{path} has a row without whole observations ({error})",
                hint="the file was altered; calibrate again",
            ) from error


def _pack(name: str, column: NDArray[Any]) -> str:
    return base64.b64encode(column.astype(KINDS[name]).tobytes()).decode()


def _unpack(name: str, text: str) -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(text, validate=True), KINDS[name])


def collect(
    layers: Sequence[int], parts: Iterable[ImageObservations], *, readout: str = DMRR
) -> Observations:
    """Put single images together in canonical order."""
    ordered = sorted(parts, key=lambda part: part.key)
    for one, other in itertools.pairwise(ordered):
        if one.key == other.key:
            raise MismatchError(
                f"the image {one.key!r} is in two shards and would count twice", hint="make shards disjoint"
            )
    sizes = [len(part.token) for part in ordered]
    empty = np.zeros((len(layers), 0), dtype=np.float32)
    beside = [part.ranks for part in ordered if part.ranks is not None]
    return Observations(
        tuple(layers),
        tuple(part.key for part in ordered),
        np.repeat(np.arange(len(ordered), dtype=np.int32), sizes),
        np.concatenate([np.zeros(0, np.int64), *[part.token for part in ordered]]).astype(np.int32),
        np.concatenate([np.zeros(0, np.int64), *[part.count for part in ordered]]).astype(np.int32),
        np.concatenate([empty, *[part.values for part in ordered]], axis=1).astype(np.float32),
        readout,
        np.concatenate([empty, *beside], axis=1).astype(np.float32) if READOUTS[readout].matched else None,
    )


def split(observations: Observations) -> list[ImageObservations]:
    """Split a set into its single images."""
    bounds = np.searchsorted(observations.image, np.arange(len(observations.images) + 1))
    return [
        ImageObservations(
            key,
            observations.token[start:stop].astype(np.int64),
            observations.count[start:stop].astype(np.int64),
            observations.values[:, start:stop],
            None if observations.ranks is None else observations.ranks[:, start:stop],
        )
        for key, start, stop in zip(observations.images, bounds[:-1], bounds[1:], strict=True)
    ]


def merge(shards: Sequence[Observations]) -> Observations:
    """Unite disjoint shards; the result does not depend on their order."""
    if not shards:
        raise InputError("there is nothing to merge")
    layers, readout = shards[0].layers, shards[0].readout
    for shard in shards[1:]:
        if shard.layers != layers:
            raise MismatchError(f"the shards were read at different layers: {layers} and {shard.layers}")
        if shard.readout != readout:
            raise MismatchError(f"the shards hold different readouts: {readout} and {shard.readout}")
    return collect(layers, [part for shard in shards for part in split(shard)], readout=readout)


def count_candidates(ids: NDArray[Any], keep: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count at how many of one image's steps (T, C) each token was a candidate."""
    token, count = np.unique(ids[keep], return_counts=True)
    return token.astype(np.int64), count.astype(np.int64)
