"""Directions from pairs of answers about one image, one truthful and one that names absent objects; for VTI and
Nullu.

They lie in a sealed folder, as steering vectors do. States are those of transformers' ``hidden_states``: index 0 is
the embeddings, the last one is normed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import ArtifactError, CalibrationError, InputError
from reweigh.families.anatomy import Anatomy
from reweigh.families.identity import identify
from reweigh.files.artifacts import sha256_json
from reweigh.files.folder import SealedFolder
from reweigh.rivals.tools.steering import check_pairing
from reweigh.tables.identity import Identity

SCHEMA = 1
RANK = 16
"""Singular vectors kept for each block; Nullu removes 4 or 8 of them."""

DIRECTIONS = SealedFolder(
    kind="pair directions",
    page="pair_directions.json",
    numbers="pair_directions.safetensors",
    arrays=("direction", "subspace"),
    fields={"pairs": int, "made_with": dict},
    schemas=(SCHEMA,),
    remedy="make some with `reweigh steer`, or fetch them again",
)

Floats = NDArray[np.float32]


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
                hint="use more images, or ones that the model gets wrong",
            )


@dataclass(frozen=True, eq=False)
class PairDirections:
    """Directions of one model.

    Attributes:
        direction: VTI's, one for each block, float32 (L, d).
        subspace: Nullu's, orthonormal rows for each block, float32 (L, k, d).
        pairs: How many pairs of answers they come from.
        made_with: Identity of model and processor, records and their hash, versions.
    """

    direction: Floats
    subspace: Floats
    pairs: int
    made_with: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        """Hash of everything they say."""
        return sha256_json(
            {**self._page(), "direction": self.direction.tolist(), "subspace": self.subspace.tolist()}
        )

    def _page(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA, "pairs": self.pairs, "made_with": dict(self.made_with)}

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the directions into a folder."""
        return DIRECTIONS.write_output(
            Path(folder), self._page(), {"direction": self.direction, "subspace": self.subspace}
        )

    @classmethod
    def load(cls, folder: str | Path) -> PairDirections:
        """Read and verify directions from their folder."""
        page, arrays = DIRECTIONS.read(Path(folder))
        found = cls(arrays["direction"], arrays["subspace"], page["pairs"], page["made_with"])
        found.verify()
        return found

    def verify(self) -> None:
        """Refuse numbers that cannot be directions, whatever their hash says."""
        direction, subspace = self.direction, self.subspace
        fits = (
            direction.dtype == subspace.dtype == np.float32
            and direction.ndim == 2
            and subspace.ndim == 3
            and (len(direction), direction.shape[-1]) == (len(subspace), subspace.shape[-1])
            and np.isfinite(direction).all()
            and 1 <= subspace.shape[1] <= min(RANK, self.pairs)
        )
        if not fits or np.abs(subspace @ subspace.swapaxes(1, 2) - np.eye(subspace.shape[1])).max() > 1e-3:
            raise ArtifactError(
                "the pair directions are not usable", hint="make them again with `reweigh steer`"
            )

    def check_pairing(self, identity: Identity) -> None:
        """Refuse directions that another model or processor made, naming both sides."""
        check_pairing("pair directions", self.made_with, identity)


def directions_of(
    vectors: PairDirections | str | Path, anatomy: Anatomy, processor: Any, *, force: bool
) -> PairDirections:
    """The directions, read from their folder if need be, for a model of as many blocks; another model is refused."""
    found = vectors if isinstance(vectors, PairDirections) else PairDirections.load(vectors)
    if len(found.direction) != len(anatomy.blocks):
        raise InputError(
            f"the pair directions are of {len(found.direction)} blocks, but the model has {len(anatomy.blocks)}",
            hint="make them again with `reweigh steer`",
        )
    if not force:
        found.check_pairing(identify(anatomy, processor))
    return found
