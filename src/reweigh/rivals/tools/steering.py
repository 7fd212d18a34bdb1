"""Steering vectors: for each block the mean state of factual tokens minus that of hallucinated ones.

They lie in a sealed folder, as a reference table does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import ArtifactError, CalibrationError, MismatchError
from reweigh.files.artifacts import sha256_json
from reweigh.files.folder import SealedFolder
from reweigh.tables.identity import Identity

SCHEMA = 1
PAGE = "steering_vectors.json"
NUMBERS = "steering_vectors.safetensors"
VECTORS = SealedFolder(
    kind="steering vectors",
    page=PAGE,
    numbers=NUMBERS,
    arrays=("vectors",),
    fields={"layers": list, "factual": int, "hallucinated": int, "made_with": dict},
    schemas=(SCHEMA,),
    remedy="make some with `reweigh steer`, or fetch them again",
)


class LabelledSums:
    """Sums of labelled states: factual and hallucinated tokens apart, in float64."""

    def __init__(self, blocks: int, width: int) -> None:
        self.sums = np.zeros((2, blocks, width))
        self.counts = np.zeros(2, dtype=np.int64)

    def add(self, states: NDArray[Any], hallucinated: Sequence[bool | None]) -> None:
        """Add the states (n, L, d) of an answer's tokens; ``None`` is a token that names no object."""
        for label in (False, True):
            chosen = [index for index, found in enumerate(hallucinated) if found is label]
            self.sums[int(label)] += states[chosen].astype(np.float64).sum(axis=0)
            self.counts[int(label)] += len(chosen)

    def vectors(self) -> NDArray[np.float32]:
        """v_l = mean of the factual states minus mean of the hallucinated ones, (L, d)."""
        if not self.counts.all():
            raise CalibrationError(
                f"{self.counts[0]} factual and {self.counts[1]} hallucinated tokens were found; both are needed",
                hint="use more images, or ones that the model gets wrong",
            )
        factual, hallucinated = self.sums / self.counts[:, None, None]
        found: NDArray[np.float32] = (factual - hallucinated).astype(np.float32)
        return found


@dataclass(frozen=True, eq=False)
class SteeringVectors:
    """Steering vectors of one model.

    Attributes:
        layers: 0-based blocks, ascending.
        vectors: One for each block, float32 (L, d); from hallucinated towards factual.
        counts: Factual and hallucinated tokens behind them.
        made_with: Identity of model and processor, prompt, records and their hash, versions.
    """

    layers: tuple[int, ...]
    vectors: NDArray[np.float32]
    counts: tuple[int, int]
    made_with: Mapping[str, Any]

    def __repr__(self) -> str:
        model = self.made_with.get("identity", {}).get("model_id", "?")
        return f"SteeringVectors({model!r}, {len(self.layers)} blocks, {self.counts[0]} + {self.counts[1]} tokens)"

    @property
    def fingerprint(self) -> str:
        """Hash of everything the vectors say."""
        return sha256_json({**self._page(), "vectors": self.vectors.tolist()})

    def _page(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA,
            "layers": list(self.layers),
            "factual": self.counts[0],
            "hallucinated": self.counts[1],
            "made_with": dict(self.made_with),
        }

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the vectors into a folder; files of others under their names are refused."""
        return VECTORS.write_output(Path(folder), self._page(), {"vectors": self.vectors})

    save = save_pretrained

    @classmethod
    def load(cls, folder: str | Path) -> SteeringVectors:
        """Read and verify vectors from their folder."""
        page, arrays = VECTORS.read(Path(folder))
        counts = (page["factual"], page["hallucinated"])
        found = cls(tuple(page["layers"]), arrays["vectors"], counts, page["made_with"])
        found.verify()
        return found

    def verify(self) -> None:
        """Refuse numbers that cannot be steering vectors, whatever their hash says."""
        vectors, layers = self.vectors, self.layers
        ordered = all(type(layer) is int and layer >= 0 for layer in layers) and sorted(set(layers)) == [
            *layers
        ]
        if (
            not ordered
            or vectors.dtype != np.float32
            or vectors.ndim != 2
            or not len(vectors) == len(layers) > 0
            or not np.isfinite(vectors).all()
            or min(self.counts) < 1
            or layers[-1] >= self.made_with.get("identity", {}).get("blocks", layers[-1] + 1)
        ):
            raise ArtifactError("the steering vectors are not usable", hint="make them again")

    def check_pairing(self, identity: Identity) -> None:
        """Refuse vectors that another model or processor made, naming both sides."""
        check_pairing("steering vectors", self.made_with, identity)


def check_pairing(kind: str, made_with: Mapping[str, Any], identity: Identity) -> None:
    """Refuse an artifact that another model or processor made, naming both sides."""
    record = made_with.get("identity")
    record = record if isinstance(record, Mapping) else {}
    lacking = [f"its {name} is not recorded" for name in identity.missing(record)]
    differing = lacking or identity.differences(record)
    if differing:
        raise MismatchError(
            f"these {kind} were made with {record.get('model_id') or 'another model'}, "
            f"not with {identity.model_id or 'this model'} as it is loaded ({'; '.join(differing)})",
            hint="make them for this model, or pass force=True if you know that the difference does not matter",
        )
