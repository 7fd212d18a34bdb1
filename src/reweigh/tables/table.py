"""The reference table: b0 and b(v) of the registered tokens, with what is needed to refuse a wrong pairing.

One safetensors file, called after its layer: the columns, and in the header a page with b0, what the table was made with,
the operating point if tuning recorded one, and a hash. A cut or altered file is never taken for a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import ArtifactError, MismatchError
from reweigh.files.artifacts import require_fields, sha256_json
from reweigh.files.paged import claim_paged, read_paged, write_paged
from reweigh.method.readouts import DMRR, READOUTS
from reweigh.method.references import References, least_count, strength
from reweigh.tables import schema2
from reweigh.tables.point import OperatingPoint
from reweigh.tables.store import LAYER, fetch_folder, file_name, find_table, push_folder
from reweigh.text import in_words

if TYPE_CHECKING:
    from reweigh.tables.key import ModelKey

SCHEMA = 3
COLUMNS = {"tokens": np.int64, "references": np.float64, "counts": np.int64}
LOW_SHARE = 0.75
"""Share of references below b0 beyond which a table says little; the embedded model, on which the edit works, has 0.62."""
REQUIRED = {"dtype": "its lens dtype", "candidates": "its candidate rule"}
"""What a pairing compares besides the identity."""


def candidate_rule() -> dict[str, float]:
    """Return the rule of this version, as a table records it."""
    from reweigh.method.edit import LEAST, MASS, MOST

    return {"mass": MASS, "least": LEAST, "most": MOST}


@dataclass(frozen=True, eq=False)
class ReferenceTable:
    """Token references of one model at one layer.

    Attributes:
        layer: 0-based block the evidence was read at.
        b0: The pooled median of all observations and the unit of a deficit.
        tokens: Registered token ids, ascending.
        references: b(v) of each.
        counts: Observations behind each.
        about: Key of model and processor, lens dtype and chunk, candidate rule, prompt and corpus
            hashes, image count, registration rule, versions, and the checkpoint's generation settings if any
            changes greedy decoding.
        point: The operating point that tuning recorded in this table, if it did.

    Examples:
        >>> import reweigh
        >>> from reweigh import world
        >>> reweigh.ReferenceTable.from_pretrained(world.table_path())
        ReferenceTable('reweigh world', layer=2, b0=0.0065498, registered=348)
    """

    layer: int
    b0: float
    tokens: NDArray[np.int64]
    references: NDArray[np.float64]
    counts: NDArray[np.int64]
    about: Mapping[str, Any]
    point: OperatingPoint | None = None

    @classmethod
    def build(cls, layer: int, found: References, about: Mapping[str, Any]) -> ReferenceTable:
        """Make a table from registered references; one whose scale was matched says how well."""
        if found.match is not None:
            about = {**about, "matched": asdict(found.match)}
        return cls(layer, found.scale, found.tokens, found.references, found.counts, dict(about))

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        model = self.about.get("identity", {}).get("model_id", "?")
        return f"ReferenceTable({model!r}, layer={self.layer}, b0={self.b0:.6g}, registered={len(self)})"

    @property
    def readout(self) -> str:
        """How the evidence behind the references was read."""
        return str(self.about.get("readout", DMRR))

    @property
    def fingerprint(self) -> str:
        """Hash of everything the table says; equal tables have equal fingerprints."""
        numbers = {name: column.tolist() for name, column in self.arrays().items()}
        return sha256_json({"layer": self.layer, "b0": self.b0, "made_with": dict(self.about), **numbers})

    def reference(self, token: int) -> float | None:
        """Return b(v), or ``None`` for a token that is not registered; b0 never stands in for it."""
        at = int(np.searchsorted(self.tokens, token))
        return float(self.references[at]) if at < len(self.tokens) and self.tokens[at] == token else None

    def support(self, token: int, evidence: Sequence[float] | None) -> dict[str, float | None]:
        """Return a token's evidence, reference and strength as servers report them.

        Args:
            evidence: That of the registered tokens in order; without it, and for any other token, all three are ``None``.
        """
        reference = self.reference(token)
        if reference is None or evidence is None:
            return {"dmrr": None, "b": None, "s": None}
        value = float(evidence[int(np.searchsorted(self.tokens, token))])
        return {"dmrr": value, "b": reference, "s": float(strength(reference, np.array(value), self.b0))}

    @property
    def low_share(self) -> float:
        """Share of the registered tokens whose reference is below b0: such a token loses at most beta * b / b0."""
        return float((self.references < self.b0).mean()) if len(self) else 0.0

    def weakness(self) -> str | None:
        """Warn about references that say little, if these do."""
        if self.readout != DMRR or self.low_share <= LOW_SHARE:
            return None
        return (
            f"{self.low_share:.0%} of the registered tokens have a reference below b0, so most penalties stay below beta "
            "and words that are usually wrong escape; compare with the base model before you rely on it"
        )

    def over(self, vocab_size: int) -> NDArray[np.float64]:
        """Return b(v) over a whole vocabulary, NaN where a token is not registered."""
        found = np.full(vocab_size, np.nan)
        found[self.tokens] = self.references
        return found

    def page(self) -> dict[str, Any]:
        """Return what the table's page holds."""
        page = {"schema": SCHEMA, "layer": self.layer, "b0": self.b0, "about": dict(self.about)}
        if self.point is not None:
            page["point"] = {name: one for name, one in asdict(self.point).items() if name != "layer"}
        return page

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the table's columns by name."""
        return {name: getattr(self, name) for name in COLUMNS}

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the table into a folder, atomically, and return its file; only a table is replaced.

        Raises:
            InputError: A file of that name is not a table of reweigh.
        """
        path = Path(folder) / file_name(self.layer)
        claim_paged(path, "a reference table")
        write_paged(path, self.page(), self.arrays())
        return path

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        layer: int | None = None,
        default: int | None = None,
        revision: str | None = None,
        **hub: Any,
    ) -> ReferenceTable:
        """Read and verify a table: its file, a folder with one or several layers, or a Hub repository of either.

        Args:
            layer: The layer wanted; the tuned one of the folder, then ``default``, if not given.
            hub: Goes to ``snapshot_download``: ``token``, ``cache_dir`` ...
        """
        path = find_table(fetch_folder(name, revision=revision, **hub), layer, default)
        page, arrays = schema2.read_table(path) if path.is_dir() else read_paged(path)
        require_fields(page, path, {"layer": int, "b0": float, "about": dict})
        if not path.is_dir() and (type(page.get("schema")), page.get("schema")) != (int, SCHEMA):
            raise ArtifactError(
                f"{path} has schema {page.get('schema')!r}, this version reads {SCHEMA}",
                hint="upgrade reweigh, or calibrate again",
            )
        if missing := [name for name in COLUMNS if name not in arrays]:
            raise ArtifactError(f"{path} has no column {missing[0]!r}: it is not a reference table")
        point = page.get("point")
        if point is not None:
            require_fields(page, path, {"point": dict})
            require_fields(point, path, {"beta": float, "source": str, "records": int, "pictures": dict})
            point = OperatingPoint(
                page["layer"], *(point[name] for name in ("beta", "source", "records", "pictures"))
            )
        columns: dict[str, Any] = {name: arrays[name] for name in COLUMNS}
        table = cls(layer=page["layer"], b0=page["b0"], about=page["about"], point=point, **columns)
        table.verify()
        table.check_layer(layer)
        if (named := LAYER.fullmatch(path.name)) and int(named[1]) != table.layer:
            raise ArtifactError(
                f"{path} is a table of layer {table.layer}",
                hint="it was renamed; fetch or calibrate it again",
            )
        return table

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | bool | None = None,
        commit_message: str = "Add a reference table",
        **hub: Any,
    ) -> str:
        """Upload the table to a Hub repository and return its address.

        Args:
            private: Whether a repository that does not exist yet is made private.
            hub: Goes to ``HfApi.upload_folder``: ``revision``, ``path_in_repo``, ``create_pr`` ...
        """
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return push_folder(
                folder, repo_id, private=private, token=token, commit_message=commit_message, **hub
            )

    def verify(self) -> None:
        """Refuse impossible numbers even if the checksum matches; bounds follow from the definitions.

        Raises:
            ArtifactError: Names everything that is impossible.
        """
        identity = self.about.get("identity")
        if not isinstance(identity, Mapping) or not identity:
            raise ArtifactError(
                "the table does not say which model it belongs to: its identity is empty",
                hint="its page is incomplete; calibrate the model again",
            )
        problems = list(_problems(self, identity))
        if problems:
            raise ArtifactError(f"the table is not usable: {'; '.join(problems)}", hint="calibrate again")

    def check_layer(self, layer: int | None) -> None:
        """Refuse a layer other than the table's own; forcing it would read evidence of another scale."""
        if layer is not None and layer != self.layer:
            raise MismatchError(
                f"this table is of layer {self.layer}, but layer {layer} was asked for",
                hint=f"leave the layer out, say {self.layer}, or calibrate layer {layer}",
            )

    @property
    def rows(self) -> int | None:
        """How many rows of the head were ranked; a table that does not say ranked all of them."""
        identity = self.about.get("identity") or {}
        rows = self.about.get("rows", identity.get("vocab_size"))
        return rows if isinstance(rows, int) else None

    def check_pairing(self, identity: ModelKey, *, dtype: str, rows: int) -> None:
        """Refuse a table that another model, processor, lens dtype or candidate rule made, naming both sides.

        Raises:
            MismatchError: They differ, or the table does not say enough to tell.
        """
        record = self.about.get("identity")
        record = record if isinstance(record, Mapping) else {}
        lacking = [f"the {name} of its model" for name in identity.missing(record)]
        lacking += [words for key, words in REQUIRED.items() if not self.about.get(key)]
        if lacking:
            raise MismatchError(
                f"this table lacks {', '.join(lacking)}, so it cannot be verified: its page is incomplete",
                hint="calibrate this model again, or pass force=True (--force) if you know that the table belongs to it",
            )
        differing = identity.differences(record)
        hint = (
            "calibrate this model, load it as the table's model was, or pass force=True (--force) "
            "if you know that the difference does not matter"
        )
        if (made := self.about["dtype"]) != dtype:
            if not differing and self.rows == rows:
                name = identity.model_id or "MODEL"
                hint = (
                    f'load the model in the table\'s type: reweigh.load("{name}", dtype="{made}"), '
                    f"--model-option dtype={made} for a command, --dtype {made} for vLLM; or calibrate it in {dtype}"
                )
            differing.append(f"lens dtype: table {made}, model {dtype}")
        if self.rows != rows:
            differing.append(f"rows ranked: table {self.rows}, model {rows}")
        if (rule := self.about["candidates"]) != candidate_rule():
            differing.append(
                f"candidate rule: table {in_words(rule)}, this version {in_words(candidate_rule())}"
            )
        if differing:
            raise MismatchError(
                f"this table was made with {record.get('model_id') or 'another model'}, "
                f"not with {identity.model_id or 'this model'} as it is loaded ({'; '.join(differing)})",
                hint=hint,
            )

    def compare(self, other: ReferenceTable) -> dict[str, Any]:
        """Compare two tables: layer, b0, tokens, counts, references, and what they were made with."""
        from reweigh.tables.compared import compare_tables  # compares weights, which needs torch

        return compare_tables(self, other)


def _problems(table: ReferenceTable, identity: Mapping[str, Any]) -> Iterator[str]:
    """Yield what makes a table invalid."""
    columns = table.arrays()
    if any(column.ndim != 1 or column.dtype != COLUMNS[name] for name, column in columns.items()):
        yield "its columns have unexpected types or shapes"
        return
    if len({len(column) for column in columns.values()}) > 1:
        yield "its columns have different lengths"
        return
    if table.readout not in READOUTS:
        yield f"its readout {table.readout!r} is unknown"
        return
    blocks, vocabulary = identity.get("blocks"), table.rows
    if table.layer < 0 or (isinstance(blocks, int) and table.layer >= blocks):
        yield f"layer {table.layer} is not one of the model's {blocks} blocks"
    if not (np.isfinite(table.b0) and table.b0 > 0):
        yield f"b0 is {table.b0}"
    elif READOUTS[table.readout].is_share and table.b0 > 1:
        yield f"b0 is {table.b0}, beyond (0, 1]"
    elif table.readout == DMRR and isinstance(vocabulary, int) and table.b0 * vocabulary < 0.99:
        yield f"b0 is {table.b0}, below the least reciprocal rank of {vocabulary} tokens"
    if len(table) and (int(table.tokens[0]) < 0 or (np.diff(table.tokens) <= 0).any()):
        yield "its token ids are not ascending"
    elif len(table) and isinstance(vocabulary, int) and int(table.tokens[-1]) >= vocabulary:
        yield f"token {int(table.tokens[-1])} is beyond the {vocabulary} that were ranked"
    if not np.isfinite(table.references).all():
        yield "a reference is not finite"
    elif READOUTS[table.readout].is_share and not ((table.references > 0) & (table.references <= 1)).all():
        yield "a reference is outside (0, 1]"
    if table.point is not None:
        from reweigh.method.edit import MOST_BETA  # a table without a point needs no torch

        if not 0 <= table.point.beta <= MOST_BETA:
            yield f"the beta of its point is {table.point.beta}"
    least = least_count(str(table.about.get("rule", "")))
    if (table.counts < least).any():
        yield f"the count of a token is {int(table.counts.min())}, its rule asks for {least}"
