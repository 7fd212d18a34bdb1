"""What ASD, VTI and Nullu learn from a model's labeled answers, kept in one file like a reference table.

ASD's vectors are differences between the states of factual and hallucinated tokens. The directions of VTI and Nullu come
from pairs of answers about one image, one truthful and one that names absent objects; their states are transformers'
``hidden_states``: index 0 is the embeddings, the last one is normed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import ArtifactError, CalibrationError, InputError, MismatchError
from reweigh.families.anatomy import Anatomy
from reweigh.families.identity import identify
from reweigh.files.artifacts import require_fields, sha256_json
from reweigh.files.paged import claim_paged, read_paged, write_paged
from reweigh.tables.key import ModelKey

Floats = NDArray[np.float32]

SCHEMA = 3
ARRAYS = ("vectors", "direction", "subspace")
FIELDS = {"factual": int, "hallucinated": int, "pairs": int, "made_with": dict}
MAKE = "`reweigh compare MODEL -m asd,vti` (in OUT/steering)"
MORE_IMAGES = "use more images, or ones that the model gets wrong"


class LabeledSums:
    """Sums of labeled states, separately for factual and hallucinated tokens, in float64."""

    def __init__(self, blocks: int, width: int) -> None:
        self.sums = np.zeros((2, blocks, width))
        self.counts = np.zeros(2, dtype=np.int64)

    def add(self, states: NDArray[Any], hallucinated: Sequence[bool | None]) -> None:
        """Add the states (n, L, d) of an answer's tokens; ``None`` is a token that names no object."""
        for label in (False, True):
            chosen = [index for index, found in enumerate(hallucinated) if found is label]
            self.sums[int(label)] += states[chosen].astype(np.float64).sum(axis=0)
            self.counts[int(label)] += len(chosen)

    def vectors(self) -> Floats:
        """v_l = mean of the factual states minus mean of the hallucinated ones, (L, d)."""
        if not self.counts.all():
            raise CalibrationError(
                f"{self.counts[0]} factual and {self.counts[1]} hallucinated tokens were found; both are needed",
                hint=MORE_IMAGES,
            )
        factual, hallucinated = self.sums / self.counts[:, None, None]
        found: Floats = (factual - hallucinated).astype(np.float32)
        return found


RANK = 16
"""Singular vectors kept for each block; Nullu removes 4 or 8 of them."""


@dataclass(eq=False)
class Pairs:
    """Differences of states between the two answers of each pair, truthful minus hallucinated, each (L + 1, d)."""

    last: list[Floats] = field(default_factory=list)
    mean: list[Floats] = field(default_factory=list)

    def add(self, truthful: Floats, hallucinated: Floats) -> None:
        """Add a pair by the states (T, L + 1, d) at all positions of prompt and answer."""
        self.last.append(truthful[-1] - hallucinated[-1])
        self.mean.append(truthful.mean(axis=0) - hallucinated.mean(axis=0))

    def direction(self) -> Floats:
        """VTI's direction (L, d): the mean difference at the last token, plus its first principal component.

        The component is that of all indices as one long vector, has length 1 and the sign that makes the largest weight
        positive. Index 0 is dropped afterwards.
        """
        self._require()
        long = np.stack(self.last).astype(np.float64).reshape(len(self.last), -1)
        weights, _, components = np.linalg.svd(long - long.mean(axis=0), full_matrices=False)
        sign = np.sign(weights[np.abs(weights[:, 0]).argmax(), 0])
        whole = long.mean(axis=0) + sign * components[0]
        found: Floats = whole.reshape(self.last[0].shape)[1:].astype(np.float32)
        return found

    def subspace(self) -> Floats:
        """Nullu's subspaces (L, k, d): the leading right singular vectors of each block's mean differences."""
        self._require()
        states = np.stack(self.mean).astype(np.float64)[:, 1:]  # (pairs, L, d)
        rank = min(RANK, len(states), states.shape[-1])
        found = [
            np.linalg.svd(states[:, block], full_matrices=False)[2][:rank] for block in range(states.shape[1])
        ]
        return np.stack(found).astype(np.float32)

    def _require(self) -> None:
        if not self.last:
            raise CalibrationError(
                "no answer names an absent object and says something else too, so there is no pair to compare",
                hint=MORE_IMAGES,
            )


@dataclass(frozen=True, eq=False, repr=False)
class SteeringVectors:
    """The directions in which a model's factual and hallucinated answers differ.

    Attributes:
        vectors: ASD's, the mean state of factual tokens minus that of hallucinated ones after each block, float32 (L, d).
        direction: VTI's, one for each block, float32 (L, d).
        subspace: Nullu's, orthonormal rows for each block, float32 (L, k, d).
        factual: How many tokens named an object that is there.
        hallucinated: How many tokens named an absent one.
        pairs: How many pairs of answers there were.
        made_with: Identity of model and processor, prompt, records and their hash, versions.
    """

    vectors: Floats
    direction: Floats
    subspace: Floats
    factual: int
    hallucinated: int
    pairs: int
    made_with: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"<SteeringVectors of {self.made_with.get('identity', {}).get('model_id', '?')!r}>"

    def page(self) -> dict[str, Any]:
        """What the page says besides its hash."""
        return {"schema": SCHEMA} | {name: getattr(self, name) for name in FIELDS}

    def arrays(self) -> dict[str, Floats]:
        """The numbers by name."""
        return {name: getattr(self, name) for name in ARRAYS}

    @property
    def fingerprint(self) -> str:
        """Hash of everything the artifact says."""
        return sha256_json(self.page() | {name: array.tolist() for name, array in self.arrays().items()})

    @staticmethod
    def file(folder: str | Path) -> Path:
        """Return the file of the vectors in a folder."""
        return Path(folder) / "steering_vectors.safetensors"

    @classmethod
    def claim(cls, folder: str | Path) -> None:
        """Refuse to replace another file of that name."""
        claim_paged(cls.file(folder), "steering vectors")

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the vectors into a folder; refuse to replace a file that is something else."""
        self.claim(folder)
        write_paged(self.file(folder), self.page(), self.arrays())
        return Path(folder)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read and verify the vectors in a folder."""
        path = cls.file(folder)
        if not path.is_file():
            raise ArtifactError(
                f"{folder} contains no steering vectors ({path.name})", hint=f"make some with {MAKE}"
            )
        page, arrays = read_paged(path)
        require_fields(page, path, {"schema": int, **FIELDS})
        if page["schema"] != SCHEMA or not set(ARRAYS) <= set(arrays):
            raise ArtifactError(
                f"{path} has schema {page['schema']}, this version reads {SCHEMA}",
                hint=f"make some with {MAKE}",
            )
        said: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
        found = cls(**said, **{name: page[name] for name in FIELDS})
        found.verify()
        return found

    @classmethod
    def of(cls, given: Self | str | Path, anatomy: Anatomy, processor: Any, *, force: bool) -> Self:
        """Return an artifact, or load it from a folder; refuse another model's unless forced."""
        found = cls.load(given) if isinstance(given, str | Path) else given
        if not force:
            found.check_pairing(identify(anatomy, processor))
        if len(found.vectors) != len(anatomy.blocks):
            raise InputError(
                f"there are steering vectors of {len(found.vectors)} blocks, but the model has {len(anatomy.blocks)}",
                hint=f"make them again with {MAKE}",
            )
        return found

    def verify(self) -> None:
        """Refuse impossible values, even if the checksum matches."""
        vectors, subspace = self.vectors, self.subspace
        fits = (
            all(array.dtype == np.float32 and np.isfinite(array).all() for array in self.arrays().values())
            and vectors.ndim == 2
            and subspace.ndim == 3
            and vectors.shape == self.direction.shape == (len(subspace), subspace.shape[-1])
            and min(len(vectors), self.factual, self.hallucinated) >= 1
            and 1 <= subspace.shape[1] <= min(RANK, self.pairs)
        )
        if not fits or np.abs(subspace @ subspace.swapaxes(1, 2) - np.eye(subspace.shape[1])).max() > 1e-3:
            raise ArtifactError("the steering vectors are not usable", hint=f"make them again with {MAKE}")

    def check_pairing(self, identity: ModelKey) -> None:
        """Refuse an artifact that another model or processor made, naming both sides."""
        record = self.made_with.get("identity")
        record = record if isinstance(record, Mapping) else {}
        lacking = [f"its {name} is not recorded" for name in identity.missing(record)]
        differing = lacking or identity.differences(record)
        if differing:
            raise MismatchError(
                f"these steering vectors were made with {record.get('model_id') or 'another model'}, "
                f"not with {identity.model_id or 'this model'} as it is loaded ({'; '.join(differing)})",
                hint="make them for this model, or pass force=True if you know that the difference does not matter",
            )
