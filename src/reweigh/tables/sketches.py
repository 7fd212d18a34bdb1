"""Sketches of observations: for each token and layer counted bins of its evidence, for each image sixteen bytes.

They stand beside ``Observations`` where these would not fit: their size is bounded by the vocabulary, whatever the number of
images, but for the digests by which an image in two shards is refused. Like observations they are additive: shards merge to
exactly the sketches of the whole, in any order. What is registered from them is certain, see ``binned``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import ArtifactError, InputError, MismatchError, UnsupportedError
from reweigh.files.artifacts import read_tensors, write_tensors
from reweigh.method.readouts import DMRR, READOUTS
from reweigh.method.references import ErrorBounds, References, Rule, nothing_observed, stable
from reweigh.tables.binned import Binned, Bracket, decide, scale_of
from reweigh.tables.bins import ARRAYS, Bins, count_bins, drop_bits, merge_bins
from reweigh.tables.observations import Observations, not_calibrated

BINS = 1024
"""Bins of a token and layer: with sixteen octaves all filled, 64 an octave, so that b(v) is right within 0.8%."""

LEAST, MOST = 16, 2**16
"""The fewest and the most bins of a token."""

POOLED = 2**16
"""Bins of the union of a layer's tokens, whose median is b0."""

TOKENS = 2**32
"""An owner is ``index of the layer * TOKENS + token + 1``; with 0 for the token's part it is the union of the layer."""

DIGEST = 16
"""Bytes kept of each image."""

FRACTION = 23
"""Bits of a float32's fraction."""


@dataclass(frozen=True)
class Sketches:
    """What a set of images showed, token by token.

    Attributes:
        layers: Blocks read, 0-based.
        images: (n, 16) digests of the images' keys, in order.
        bins: Counted bins of each layer's tokens and of their union.
        most: The most bins of a token.
        readout: What the evidence is.
    """

    layers: tuple[int, ...]
    images: NDArray[np.uint8]
    bins: Bins
    most: int = BINS
    readout: str = DMRR

    def __len__(self) -> int:
        union = self._union(0)
        return 0 if union is None else len(union)

    @property
    def image_count(self) -> int:
        """How many images were observed."""
        return len(self.images)

    @property
    def corpus(self) -> str:
        """Hash of which images were observed, whatever their order."""
        return hashlib.sha256(self.images.tobytes()).hexdigest()

    def equals(self, other: Any) -> bool:
        """Whether both say the same, number by number."""
        return (
            isinstance(other, Sketches)
            and (self.layers, self.most, self.readout) == (other.layers, other.most, other.readout)
            and np.array_equal(self.images, other.images)
            and self.bins.equals(other.bins)
        )

    def holds(self, keys: Iterable[str]) -> bool:
        """Whether these are the images observed, in any order."""
        return np.array_equal(self.images, digests(keys))

    def register(self, layer: int, *, rule: Rule = stable) -> References:
        """References of one layer under a rule, with how far they may be from those of all observations."""
        scale = self.scale(layer)
        kept: list[tuple[int, float, int]] = []
        errors, undecided = [(0.0, 0.0)], []
        for token, seen in self.tokens(layer):
            decided = decide(rule, seen, scale)
            if decided is None:
                undecided.append(token)
            elif decided:
                reference = seen.median()
                kept.append((token, reference.value, len(seen)))
                errors.append((seen.rank_error(), reference.error))
        rank_error, value_error = (max(column) for column in zip(*errors, strict=True))
        error_bounds = ErrorBounds(rank_error, value_error, scale.error, tuple(undecided))
        return References.of(scale.value, kept, error_bounds=error_bounds)

    def scale(self, layer: int) -> Bracket:
        """b0 of a layer between its bounds."""
        union = self._union(self._index(layer))
        if union is None:
            raise nothing_observed()
        return scale_of(union)

    def tokens(self, layer: int) -> Iterator[tuple[int, Binned]]:
        """Each token of a layer with its observations in bins."""
        index = self._index(layer) * TOKENS
        ends = np.cumsum(self.bins.size)
        for at in np.flatnonzero((self.bins.owner > index) & (self.bins.owner < index + TOKENS)):
            rows = slice(int(ends[at] - self.bins.size[at]), int(ends[at]))
            yield int(self.bins.owner[at]) - index - 1, self._binned(rows, int(self.bins.shift[at]))

    def _union(self, index: int) -> Binned | None:
        """All observations of a layer; ``None`` where there are none."""
        at = int(np.searchsorted(self.bins.owner, index * TOKENS))
        if at == len(self.bins) or self.bins.owner[at] != index * TOKENS:
            return None
        start = int(self.bins.size[:at].sum())
        return self._binned(slice(start, start + int(self.bins.size[at])), int(self.bins.shift[at]))

    def _binned(self, rows: slice, shift: int) -> Binned:
        edge = self.bins.edge[rows]
        last = (edge | np.uint32((1 << shift) - 1)).view(np.float32).astype(np.float64)
        low = edge.view(np.float32).astype(np.float64)
        return Binned(low, np.minimum(last, 1.0), self.bins.count[rows])

    def at(self, layers: Iterable[int]) -> Sketches:
        """The sketches of some of the layers."""
        wanted = sorted(set(layers))
        indices = np.array([self._index(layer) for layer in wanted])
        found = self.bins.chosen(np.isin(self.bins.owner // TOKENS, indices))
        owner = np.searchsorted(indices, found.owner // TOKENS) * TOKENS + found.owner % TOKENS
        return replace(self, layers=tuple(wanted), bins=replace(found, owner=owner))

    def with_bits(self, bits: int) -> Sketches:
        """These with no more than so many bits of a value's fraction, which is what more images would leave of them.

        The union of a layer keeps as many bits more as it may have more bins.
        """
        spare = np.log2(self._limit(self.bins.owner) / self.most).astype(np.int64)
        least = np.maximum(FRACTION - bits - spare, 0)
        return replace(self, bins=drop_bits(self.bins, least, self._limit))

    def _index(self, layer: int) -> int:
        if layer not in self.layers:
            raise not_calibrated(layer, self.layers)
        return self.layers.index(layer)

    def _limit(self, owner: NDArray[np.int64]) -> NDArray[np.int64]:
        return limits(owner, self.most)

    def save(self, path: str | Path) -> None:
        """Write everything; the manifest beside it has the readout and the number of bins."""
        write_tensors(path, {**self.arrays(), "layers": np.array(self.layers, dtype=np.int32)})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The numbers, by the names they have in files."""
        return {"images": self.images, **{name: getattr(self.bins, name) for name in ARRAYS}}

    @classmethod
    def load(cls, path: str | Path, *, most: int, readout: str = DMRR) -> Sketches:
        """Read sketches."""
        arrays = read_tensors(path)
        layers = tuple(arrays["layers"].ravel().tolist()) if "layers" in arrays else ()
        return cls.of_arrays(arrays, layers, path, most=most, readout=readout)

    @classmethod
    def of_arrays(
        cls,
        arrays: Mapping[str, Any],
        layers: Sequence[int],
        path: str | Path,
        *,
        most: int,
        readout: str = DMRR,
    ) -> Sketches:
        """Sketches from a file's arrays, refused where they cannot be any; ``path`` names them in a message."""
        if missing := {"images", *ARRAYS} - set(arrays):
            raise ArtifactError(f"{path} holds no {', '.join(sorted(missing))}: it is not a file of sketches")
        bins = Bins(**{name: arrays[name] for name in ARRAYS})
        found = cls(tuple(layers), arrays["images"], bins, most, readout)
        if problem := found.problem():
            raise ArtifactError(f"{path} cannot be right: {problem}", hint="calibrate again")
        return found

    def problem(self) -> str | None:
        """Why these cannot be sketches, or ``None``: a layer's union counts what its tokens count, values lie in (0, 1]."""
        if self.images.dtype != np.uint8 or self.images.ndim != 2 or self.images.shape[1] != DIGEST:
            return "its images are not digests"
        high, low = _words(self.images)
        if ((high[1:] < high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] <= low[:-1]))).any():
            return "its images are not in order"
        if problem := self.bins.problem(self._limit):
            return problem
        owner = self.bins.owner
        if len(owner) and not 0 <= int(owner[0]) <= int(owner[-1]) < len(self.layers) * TOKENS:
            return "it speaks of layers that were not read"
        if (self.bins.edge > np.float32(1.0).view(np.uint32)).any():
            return "evidence lies outside (0, 1]"
        counted = np.repeat(owner // TOKENS, self.bins.size)
        pooled = np.repeat(owner % TOKENS == 0, self.bins.size)
        for index in range(len(self.layers)):
            whole = counted == index
            if self.bins.count[whole & pooled].sum() != self.bins.count[whole & ~pooled].sum():
                return "the union of a layer does not count what its tokens count"
        return None


def limits(owner: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """The most bins of each owner."""
    return np.where(owner % TOKENS == 0, POOLED, most)


def sketch(observations: Observations, *, most: int = BINS) -> Sketches:
    """The sketches of some observations."""
    require_sketchable(observations.readout, most)
    layers = len(observations.layers)
    own = np.arange(layers, dtype=np.int64)[:, None] * TOKENS + 1 + observations.token
    union = np.broadcast_to(np.arange(layers, dtype=np.int64)[:, None] * TOKENS, own.shape)
    owner = np.concatenate([own.ravel(), union.ravel()])
    values = np.tile(observations.values.ravel(), 2)
    count = np.tile(observations.count.astype(np.int64), 2 * layers)
    bins = count_bins(owner, values, count, lambda owners: limits(owners, most))
    return Sketches(observations.layers, digests(observations.images), bins, most, observations.readout)


def merge_sketches(parts: Iterable[Sketches]) -> Sketches:
    """Unite sketches of disjoint images, holding the whole and one of them at a time; their order does not matter."""
    whole: Sketches | None = None
    for part in parts:
        whole = part if whole is None else _united(whole, part)
    if whole is None:
        raise InputError("there is nothing to merge")
    return whole


def _united(one: Sketches, other: Sketches) -> Sketches:
    for name, words in (("layers", "were read at different layers"), ("readout", "hold different readouts")):
        if getattr(one, name) != getattr(other, name):
            raise MismatchError(f"the shards {words}: {getattr(one, name)} and {getattr(other, name)}")
    if one.most != other.most:
        raise MismatchError(f"the shards keep different numbers of bins: {one.most} and {other.most}")
    images = _ordered(np.concatenate([one.images, other.images]))
    bins = merge_bins([one.bins, other.bins], lambda owners: limits(owners, one.most))
    return replace(one, images=images, bins=bins)


def digests(keys: Iterable[str]) -> NDArray[np.uint8]:
    """(n, 16) digests of images' keys, in order; an image that is there twice is refused."""
    joined = b"".join(hashlib.sha256(key.encode()).digest()[:DIGEST] for key in keys)
    return _ordered(np.frombuffer(joined, dtype=np.uint8).reshape(-1, DIGEST))


def _ordered(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    high, low = _words(images)
    images = np.ascontiguousarray(images[np.lexsort((low, high))])
    same = (images[1:] == images[:-1]).all(axis=1)
    if same.any():
        twice = images[1:][same][0].tobytes().hex()
        raise MismatchError(
            f"the image with the digest {twice} is in two shards and would count twice",
            hint="make shards disjoint",
        )
    return images


def _words(images: NDArray[np.uint8]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Each digest as two numbers that order as its bytes do."""
    words = np.ascontiguousarray(images).view(">u8").reshape(-1, 2).astype(np.uint64)
    return words[:, 0], words[:, 1]


def require_sketchable(readout: str, most: int) -> None:
    """Refuse a readout or a number of bins that sketches cannot have."""
    if READOUTS[readout].matched:
        raise UnsupportedError(
            f"the scale of {readout} is matched to DMRR over single occurrences, which sketches do not keep",
            hint="keep the observations, or read dmrr or prob",
        )
    if not LEAST <= most <= MOST:
        raise InputError(f"a sketch has {LEAST} to {MOST:,} bins for a token, {most:,} were asked for")
