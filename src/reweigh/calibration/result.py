"""A finished calibration: observations, a table for each layer, and the manifest; merged and saved without a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from reweigh.errors import ArtifactError, InputError, MismatchError, UnsupportedError
from reweigh.files.artifacts import require_fields, sha256_file, to_json
from reweigh.files.seals import read_sealed, write_sealed
from reweigh.method.readouts import DMRR
from reweigh.method.references import rule_named
from reweigh.provenance import first_difference
from reweigh.tables.observations import Observations, merge
from reweigh.tables.sketches import Sketches, merge_sketches
from reweigh.tables.table import ReferenceTable

MANIFEST = "calibration.json"
OBSERVATIONS = "observations.safetensors"
SKETCHES = "sketches.safetensors"
"""In place of the observations where a calibration keeps sketches of them."""
BINS = "sketch.bins"
"""Where a record says how many bins its sketches may have."""
FEW = 10
"""A table of fewer tokens than this changes next to nothing, and says so."""

FIELDS = {"made_with": dict, "skipped": list, "observations_sha256": str}
"""What a manifest holds, besides the images: their keys, or their number where sketches hold their digests."""

One = TypeVar("One", Observations, Sketches)
Kept: TypeAlias = Observations | Sketches
"""What a calibration keeps of what its images showed; both are registered, merged and saved alike."""


@dataclass(frozen=True)
class Calibration:
    """The outcome of a calibration: observations, a table for each layer, and what was skipped."""

    observations: Kept
    tables: dict[int, ReferenceTable]
    made_with: dict[str, Any]
    skipped: list[dict[str, str]] = field(default_factory=list)

    @property
    def rule(self) -> str:
        """The registration rule of the tables."""
        return ",".join(sorted({str(table.made_with["rule"]) for table in self.tables.values()}))

    def warnings(self) -> dict[int, str]:
        """What is wrong with the table of a layer although it is one, in words."""
        return {
            layer: f"only {len(table)} tokens are registered, so that hardly a word can be held back: "
            f"{_observed(self.observations):,} observations of {self.observations.image_count} images are too few"
            for layer, table in self.tables.items()
            if len(table) < FEW
        }

    def exact(self) -> Observations:
        """The observations image by image, refused where only sketches of them were kept."""
        if isinstance(self.observations, Observations):
            return self.observations
        raise UnsupportedError(
            "this calibration was made with --sketch and keeps sketches, which do not tell images apart",
            hint="calibrate again without --sketch, to keep what each image showed",
        )

    def equals(self, other: Calibration) -> bool:
        """Whether both would be saved as the same files."""
        mine, theirs = (
            [one.made_with, one.skipped, {layer: table.fingerprint for layer, table in one.tables.items()}]
            for one in (self, other)
        )
        return mine == theirs and self.observations.equals(other.observations)

    def save(self, folder: str | Path) -> Path:
        """Write observations, manifest and one table folder per layer."""
        folder = Path(folder)
        kept = self.observations
        numbers = folder / (OBSERVATIONS if isinstance(kept, Observations) else SKETCHES)
        kept.save(numbers)
        for layer, table in self.tables.items():
            table.save_pretrained(folder / f"layer-{layer}")
        page = {
            "made_with": self.made_with,
            "images": list(kept.images) if isinstance(kept, Observations) else kept.image_count,
            "skipped": self.skipped,
            "observations_sha256": sha256_file(numbers),
        }
        write_sealed(folder / MANIFEST, page)
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Calibration:
        """Read a finished calibration."""
        folder = Path(folder)
        if not (folder / MANIFEST).is_file():
            raise ArtifactError(
                f"{folder} holds no finished calibration ({MANIFEST})",
                hint="make one with `reweigh calibrate`; the same command finishes one that was stopped",
            )
        page = read_sealed(folder / MANIFEST)
        sketched = page.get("made_with", {}).get("sketch") is not None
        require_fields(page, folder / MANIFEST, {**FIELDS, "images": int if sketched else list})
        numbers = folder / (SKETCHES if sketched else OBSERVATIONS)
        if not numbers.is_file():
            raise ArtifactError(f"{numbers} is missing", hint="fetch it again, or calibrate again")
        if sha256_file(numbers) != page["observations_sha256"]:
            raise ArtifactError(
                f"{numbers} is not the file its manifest describes: it was cut or altered",
                hint="fetch it again, or calibrate again",
            )
        observations = _read(numbers, page)
        tables = {layer: ReferenceTable.load(folder, layer=layer) for layer in observations.layers}
        return cls(observations, tables, page["made_with"], page["skipped"])


def _read(path: Path, page: dict[str, Any]) -> Kept:
    made_with = page["made_with"]
    readout = str(made_with.get("readout", DMRR))
    if "sketch" not in made_with:
        return Observations.load(path, page["images"], readout=readout)
    found = Sketches.load(path, most=made_with["sketch"]["bins"], readout=readout)
    if found.image_count != page["images"]:
        raise ArtifactError(f"{path} holds {found.image_count} images, its manifest {page['images']}")
    return found


def _observed(kept: Kept) -> int:
    return kept.token.size if isinstance(kept, Observations) else len(kept)


def tables_of(
    observations: Kept, made_with: dict[str, Any], *, rule: str = "stable"
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

    The model may have had another name on each machine; what it is was hashed. Of shards that keep sketches, one at a
    time is held besides the whole.
    """
    records: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []

    def compared() -> Iterator[Kept]:
        for shard in shards:
            records.append({**shard.made_with, "rule": shard.rule})
            skipped.extend(shard.skipped)
            _refuse_different(records[0], records[-1])
            yield shard.observations

    observations = merge_kept(compared())
    first = min(records, key=to_json)
    rule = str(first.pop("rule"))
    skipped.sort(key=lambda skip: skip["key"])
    return Calibration(observations, tables_of(observations, first, rule=rule), first, skipped)


def merge_kept(parts: Iterable[Kept]) -> Kept:
    """Unite what disjoint images showed, all of it observations or all of it sketches."""
    rest = iter(parts)
    first = next(rest, None)
    if first is None:
        raise InputError("there is nothing to merge")
    if isinstance(first, Sketches):
        return merge_sketches(_all_of(Sketches, first, rest))
    return merge(list(_all_of(Observations, first, rest)))


def _all_of(kind: type[One], first: One, rest: Iterable[Kept]) -> Iterator[One]:
    yield first
    for part in rest:
        if not isinstance(part, kind):
            raise MismatchError("observations and sketches of them cannot be merged")
        yield part


def _refuse_different(first: dict[str, Any], other: dict[str, Any]) -> None:
    found = first_difference(first, other, ignore={"identity.model_id"}, absent_is_none=True)
    if found is None:
        return
    if found.key == BINS:
        raise MismatchError(
            "one shard was made {}, another {}".format(*map(with_sketch, found[1:])),
            hint="calibrate all shards alike: only then their sum is that of the whole",
        )
    raise MismatchError("the shards differ in {}: {} and {}".format(found.key, *found.words))


def with_sketch(bins: int | None) -> str:
    """How a calibration kept its observations, as the option of the command says it."""
    return "without --sketch" if bins is None else f"with --sketch {bins}"
