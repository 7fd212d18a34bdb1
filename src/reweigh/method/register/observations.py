"""Calibration observations: the multisets D_v (Eq. calibration-multiset), kept per image and therefore additive.

DMRR_I(v) is one value per image and token, so an image contributes (token, value, times it was a candidate). Shards
calibrated apart merge to exactly the whole, in any order, and any rule, size or layer can be registered again later.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.artifacts import read_tensors, write_tensors
from reweigh.errors import ArtifactError, InputError, MismatchError
from reweigh.method.register.references import References, Rule, register, stable

ARRAYS = ("image", "token", "count", "values")


@dataclass(frozen=True)
class Observations:
    """What a set of images showed, image by image.

    Attributes:
        layers: Blocks read, 0-based.
        images: A key for each image, ascending; it names the image and its content.
        image: (n,) index into ``images``, ascending.
        token: (n,) token id, ascending within an image.
        count: (n,) decoding steps at which the token was a candidate.
        values: (L, n) DMRR of that token in that image at each layer, float32.
    """

    layers: tuple[int, ...]
    images: tuple[str, ...]
    image: NDArray[np.int32]
    token: NDArray[np.int32]
    count: NDArray[np.int32]
    values: NDArray[np.float32]

    def __len__(self) -> int:
        return int(self.count.sum())

    def equals(self, other: Observations) -> bool:
        """Whether both say the same, number by number."""
        same = (self.layers, self.images) == (other.layers, other.images)
        return same and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in ARRAYS)

    def register(self, layer: int, *, rule: Rule = stable) -> References:
        """References of one layer under a rule."""
        if layer not in self.layers:
            raise self._not_calibrated(layer)
        return register(self.token, self.values[self.layers.index(layer)], self.count, rule=rule)

    def at(self, layers: Iterable[int]) -> Observations:
        """The observations of some of the layers."""
        wanted = sorted(set(layers))
        unknown = [layer for layer in wanted if layer not in self.layers]
        if unknown:
            raise self._not_calibrated(unknown[0])
        values = self.values[[self.layers.index(layer) for layer in wanted]]
        return Observations(tuple(wanted), self.images, self.image, self.token, self.count, values)

    def only(self, keys: Iterable[str]) -> Observations:
        """The observations of some of the images."""
        wanted = set(keys)
        unknown = sorted(wanted - set(self.images))
        if unknown:
            raise InputError(f"{len(unknown)} images were not observed, e.g. {unknown[0]!r}")
        chosen = np.array([key in wanted for key in self.images], dtype=bool)
        rows = chosen[self.image]
        renumbered = (np.cumsum(chosen) - 1).astype(np.int32)
        images = tuple(key for key in self.images if key in wanted)
        parts = (renumbered[self.image[rows]], self.token[rows], self.count[rows], self.values[:, rows])
        return Observations(self.layers, images, *parts)

    def _not_calibrated(self, layer: int) -> InputError:
        return InputError(
            f"layer {layer} was not calibrated", hint=f"calibrated: {', '.join(map(str, self.layers))}"
        )

    def save(self, path: str | Path) -> None:
        """Write everything but the image keys, which belong to the manifest beside it."""
        arrays = {name: getattr(self, name) for name in ARRAYS}
        write_tensors(path, {**arrays, "layers": np.array(self.layers, dtype=np.int32)})

    @classmethod
    def load(cls, path: str | Path, images: Sequence[str]) -> Observations:
        """Read observations of the images named in the manifest."""
        arrays = read_tensors(path)
        if "layers" not in arrays:
            raise ArtifactError(f"{path} holds no layers: it is not an observations file")
        return cls.of_arrays(arrays, tuple(arrays["layers"].ravel().tolist()), images, path)

    @classmethod
    def of_arrays(
        cls, arrays: Mapping[str, Any], layers: Sequence[int], images: Sequence[str], path: str | Path
    ) -> Observations:
        """Observations from a file's arrays, refused where they cannot be any; ``path`` names them in a message."""
        if missing := set(ARRAYS) - set(arrays):
            raise ArtifactError(
                f"{path} holds no {', '.join(sorted(missing))}: it is not an observations file"
            )
        found = cls(tuple(layers), tuple(images), *(arrays[name] for name in ARRAYS))
        if problem := found.problem():
            raise ArtifactError(f"{path} cannot be right: {problem}", hint="calibrate again")
        return found

    def problem(self) -> str | None:
        """Why these cannot be observations, or ``None``: DMRR lies in (0, 1], counts are positive, rows are in order."""
        n = self.image.shape
        if (
            len(n) != 1
            or not self.token.shape == self.count.shape == n
            or self.values.shape != (len(self.layers), *n)
        ):
            return "its columns have different lengths"
        if self.values.dtype != np.float32 or any(
            column.dtype != np.int32 for column in (self.image, self.token, self.count)
        ):
            return "its columns have other types than those that are written"
        if list(self.images) != sorted(set(map(str, self.images))):
            return "its images are not in order"
        if n[0] and not 0 <= int(self.image.min()) <= int(self.image.max()) < len(self.images):
            return f"it speaks of image {int(self.image.max()) + 1} of {len(self.images)}"
        step = np.diff(self.image.astype(np.int64) * 2**32 + self.token)
        if (self.token < 0).any() or (step <= 0).any():
            return "its tokens are not in order"
        if (self.count < 1).any():
            return "a count is not positive"
        if not ((self.values > 0) & (self.values <= 1)).all():
            return "evidence lies outside (0, 1]"
        return None


@dataclass(frozen=True)
class ImageObservations:
    """What one image showed: distinct candidate tokens, how often, and their evidence at each layer."""

    key: str
    token: NDArray[np.int64]
    count: NDArray[np.int64]
    values: NDArray[np.float32]


def collect(layers: Sequence[int], parts: Iterable[ImageObservations]) -> Observations:
    """Put single images together in canonical order."""
    ordered = sorted(parts, key=lambda part: part.key)
    _refuse_repeats([part.key for part in ordered])
    sizes = [len(part.token) for part in ordered]
    empty = np.zeros((len(layers), 0), dtype=np.float32)
    return Observations(
        tuple(layers),
        tuple(part.key for part in ordered),
        np.repeat(np.arange(len(ordered), dtype=np.int32), sizes),
        np.concatenate([np.zeros(0, np.int64), *[part.token for part in ordered]]).astype(np.int32),
        np.concatenate([np.zeros(0, np.int64), *[part.count for part in ordered]]).astype(np.int32),
        np.concatenate([empty, *[part.values for part in ordered]], axis=1).astype(np.float32),
    )


def split(observations: Observations) -> list[ImageObservations]:
    """The single images of a set."""
    bounds = np.searchsorted(observations.image, np.arange(len(observations.images) + 1))
    return [
        ImageObservations(
            key,
            observations.token[start:stop].astype(np.int64),
            observations.count[start:stop].astype(np.int64),
            observations.values[:, start:stop],
        )
        for key, start, stop in zip(observations.images, bounds[:-1], bounds[1:], strict=True)
    ]


def merge(shards: Sequence[Observations]) -> Observations:
    """Unite disjoint shards; the result does not depend on their order."""
    if not shards:
        raise InputError("there is nothing to merge")
    layers = shards[0].layers
    for shard in shards[1:]:
        if shard.layers != layers:
            raise MismatchError(f"the shards were read at different layers: {layers} and {shard.layers}")
    return collect(layers, [part for shard in shards for part in split(shard)])


def _refuse_repeats(keys: Sequence[str]) -> None:
    for one, other in itertools.pairwise(keys):
        if one == other:
            raise MismatchError(
                f"the image {one!r} is in two shards and would count twice", hint="make shards disjoint"
            )


def count_candidates(ids: NDArray[Any], keep: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Distinct candidate tokens of one image's steps (T, C) and at how many steps each was a candidate."""
    token, count = np.unique(ids[keep], return_counts=True)
    return token.astype(np.int64), count.astype(np.int64)
