"""A finished calibration: observations, a table for each layer, and the manifest; merged and saved without a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from reweigh.errors import ArtifactError, MismatchError
from reweigh.files.artifacts import to_json
from reweigh.files.folder import SealedFolder
from reweigh.method.readouts import DMRR
from reweigh.method.references import rule_named
from reweigh.provenance import first_difference
from reweigh.tables import folders
from reweigh.tables.observations import Observations, merge
from reweigh.tables.table import ReferenceTable

MANIFEST = folders.MANIFEST
OBSERVATIONS = "observations.safetensors"
FEW = 10
"""A table of fewer tokens than this changes next to nothing, and says so."""

CALIBRATION = SealedFolder(
    kind="finished calibration",
    page=MANIFEST,
    numbers=OBSERVATIONS,
    arrays=("layers",),
    fields={"made_with": dict, "skipped": list, "images": list},
    digest="observations_sha256",
    remedy="run `reweigh calibrate` (the same command finishes one that was stopped), or fetch it again",
)


@dataclass(frozen=True)
class Calibration:
    """The outcome of a calibration: observations, a table for each layer, and what was skipped."""

    observations: Observations
    tables: dict[int, ReferenceTable]
    made_with: dict[str, Any]
    skipped: list[dict[str, str]] = field(default_factory=list)

    @property
    def rule(self) -> str:
        """The registration rule of the tables."""
        return ",".join(sorted({str(table.made_with["rule"]) for table in self.tables.values()}))

    def warnings(self) -> dict[int, str]:
        """Return warnings about valid but weak tables, by layer."""
        return {
            layer: f"only {len(table)} tokens are registered, so the edit will hardly change anything: "
            f"{self.observations.token.size:,} observations of {self.observations.image_count} images are too few"
            for layer, table in self.tables.items()
            if len(table) < FEW
        }

    def equals(self, other: Calibration) -> bool:
        """Tell whether both would be saved as the same files."""
        mine, theirs = (
            [one.made_with, one.skipped, {layer: table.fingerprint for layer, table in one.tables.items()}]
            for one in (self, other)
        )
        return mine == theirs and self.observations.equals(other.observations)

    def save(self, folder: str | Path) -> Path:
        """Write observations, manifest and one table folder per layer."""
        folder = Path(folder)
        for layer, table in self.tables.items():
            table.save_pretrained(folder / f"layer-{layer}")
        page = {
            "made_with": self.made_with,
            "images": list(self.observations.images),
            "skipped": self.skipped,
        }
        return CALIBRATION.write(folder, page, self.observations.to_arrays())

    @classmethod
    def load(cls, folder: str | Path) -> Calibration:
        """Read a finished calibration."""
        folder = Path(folder)
        page, arrays = CALIBRATION.read(folder)
        made_with = page["made_with"]
        numbers, readout = folder / OBSERVATIONS, str(made_with.get("readout", DMRR))
        layers = tuple(arrays["layers"].ravel().tolist())
        observations = Observations.of_arrays(arrays, layers, page["images"], numbers, readout=readout)
        if not set(layers) <= set(made_with.get("layers", layers)):
            raise ArtifactError(
                f"{numbers} is of layers {list(layers)}, its manifest of {made_with['layers']}"
            )
        tables = {layer: ReferenceTable.from_pretrained(folder, layer=layer) for layer in observations.layers}
        for layer, table in tables.items():
            _require_registered(folder / f"layer-{layer}", table, observations)
        return cls(observations, tables, page["made_with"], page["skipped"])


def _require_registered(folder: Path, table: ReferenceTable, observations: Observations) -> None:
    """Refuse a table whose numbers do not follow from the observations of its layer."""
    found = observations.register(table.layer, rule=rule_named(str(table.made_with.get("rule", "stable"))))
    if not (
        np.array_equal(found.tokens, table.tokens)
        and np.array_equal(found.counts, table.counts)
        and np.allclose([found.scale, *found.references], [table.scale, *table.references], rtol=1e-6, atol=0)
    ):
        raise ArtifactError(
            f"{folder} does not hold the table of its calibration's observations",
            hint="register it again: reweigh table register",
        )


def tables_of(
    observations: Observations, made_with: dict[str, Any], *, rule: str = "stable"
) -> dict[int, ReferenceTable]:
    """Register every layer of some observations under a rule; needs no model."""
    about = {
        **made_with,
        "rule": rule,
        "images": observations.image_count,
        "corpus": observations.corpus,
    }
    return {
        layer: ReferenceTable.build(layer, observations.register(layer, rule=rule_named(rule)), about)
        for layer in observations.layers
    }


def merge_calibrations(shards: Iterable[Calibration]) -> Calibration:
    """Unite calibrations of disjoint images made with the same model and settings, in any order.

    The model's name may differ between machines; its content is compared by hash.
    """
    parts = list(shards)
    records = [{**shard.made_with, "rule": shard.rule} for shard in parts]
    for record in records:
        _refuse_different(records[0], record)
    observations = merge([shard.observations for shard in parts])
    first = min(records, key=to_json)
    rule = str(first.pop("rule"))
    skipped = sorted((skip for shard in parts for skip in shard.skipped), key=lambda skip: skip["key"])
    return Calibration(observations, tables_of(observations, first, rule=rule), first, skipped)


def _refuse_different(first: dict[str, Any], other: dict[str, Any]) -> None:
    found = first_difference(first, other, ignore={"identity.model_id"})
    if found is not None:
        raise MismatchError("the shards differ in {}: {} and {}".format(found.key, *found.words))
