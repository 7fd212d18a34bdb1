"""Calibration: run the unmodified model greedily on unlabeled images and keep what its candidates' evidence was.

Work is cut into fixed batches; each finished batch is one file, so that a run killed at any moment goes on from there
and ends with the same bytes. One run serves several layers: all are read in the same prefill.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reweigh.artifacts import read_json, read_tensors, sha256_json, sha256_text, write_json, write_tensors
from reweigh.errors import CalibrationError, ImageError, InputError, MismatchError
from reweigh.families.anatomy import Anatomy, find_anatomy
from reweigh.families.identity import identify
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.intervene.candidates import LEAST, MASS, MOST, candidates
from reweigh.measure.evidence import Evidence, Gatherer
from reweigh.measure.lens import CHUNK, Lens
from reweigh.measure.tap import Glimpse, Tap, Trail
from reweigh.progress import bar
from reweigh.register.corpus import Corpus, CorpusImage, open_corpus
from reweigh.register.observations import (
    ARRAYS,
    ImageObservations,
    Observations,
    collect,
    count_candidates,
    merge,
    split,
)
from reweigh.register.reference import rule_named
from reweigh.register.table import ReferenceTable
from reweigh.versions import versions

MANIFEST = "calibration.json"
OBSERVATIONS = "observations.safetensors"
WORK = ".work"


@dataclass(frozen=True)
class Calibration:
    """The outcome of a calibration: observations, a table for each layer, and what was skipped."""

    observations: Observations
    tables: dict[int, ReferenceTable]
    made_with: dict[str, Any]
    skipped: list[dict[str, str]] = field(default_factory=list)

    def save(self, folder: str | Path) -> Path:
        """Write observations, manifest and one table folder per layer."""
        folder = Path(folder)
        self.observations.save(folder / OBSERVATIONS)
        for layer, table in self.tables.items():
            table.save_pretrained(folder / f"layer-{layer}")
        page = {
            "made_with": self.made_with,
            "images": list(self.observations.images),
            "skipped": self.skipped,
        }
        write_json(folder / MANIFEST, {**page, "page_sha256": sha256_json(page)})
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Calibration:
        """Read a finished calibration."""
        folder = Path(folder)
        page = read_json(folder / MANIFEST)
        content = {key: value for key, value in page.items() if key != "page_sha256"}
        if page.get("page_sha256") != sha256_json(content):
            raise MismatchError(
                f"{folder / MANIFEST} was altered after it was written", hint="calibrate again"
            )
        observations = Observations.load(folder / OBSERVATIONS, page["images"])
        tables = {layer: ReferenceTable.load(folder, layer=layer) for layer in observations.layers}
        return cls(observations, tables, page["made_with"], page["skipped"])


def tables_of(
    observations: Observations, made_with: dict[str, Any], *, rule: str = "stable"
) -> dict[int, ReferenceTable]:
    """Register every layer of some observations under a rule; needs no model."""
    about = {
        **made_with,
        "rule": rule,
        "images": len(observations.images),
        "corpus": corpus_hash(observations.images),
    }
    return {
        layer: ReferenceTable.build(layer, observations.register(layer, rule=rule_named(rule)), about)
        for layer in observations.layers
    }


def corpus_hash(keys: Sequence[str]) -> str:
    """Hash of which images were observed, whatever their order."""
    return sha256_json(sorted(keys))


def merge_calibrations(shards: Sequence[Calibration]) -> Calibration:
    """Unite calibrations of disjoint images made with the same model and settings, in any order."""
    if not shards:
        raise InputError("there is nothing to merge")
    first = shards[0].made_with
    for shard in shards[1:]:
        differing = [key for key in first if first[key] != shard.made_with.get(key)]
        if differing:
            key = differing[0]
            raise MismatchError(
                f"the shards differ in {key}: {first[key]!r} and {shard.made_with.get(key)!r}"
            )
    observations = merge([shard.observations for shard in shards])
    skipped = sorted((skip for shard in shards for skip in shard.skipped), key=lambda skip: skip["name"])
    return Calibration(observations, tables_of(observations, first), first, skipped)


class _Observer:
    """A listener that changes nothing: it gathers evidence and notes every step's candidates."""

    def __init__(self, gatherer: Gatherer) -> None:
        self.gatherer = gatherer
        self.layers = frozenset(gatherer.layers)
        self.trail: Trail | None = None
        self.steps: list[tuple[Tensor, Tensor]] = []

    def listen(self, glimpse: Glimpse) -> None:
        self.gatherer.gather(glimpse)
        self.trail = glimpse.trail
        chosen = candidates(glimpse.logits[:, -1])
        self.steps.append((chosen.ids, chosen.keep))


@dataclass(frozen=True)
class _Job:
    """One calibration: model, what to read, and how to decode."""

    model: Any
    processor: Any
    anatomy: Anatomy
    lens: Lens
    layers: tuple[int, ...]
    prompt: str
    template: str | None
    max_new_tokens: int
    batch_size: int
    kernel: str

    def made_with(self) -> dict[str, Any]:
        """What every shard of this calibration shares, and every table carries."""
        return {
            "identity": identify(self.anatomy, self.processor).to_json(),
            "layers": list(self.layers),
            "lens": "float32" if self.lens.upcast else "native",
            "dtype": self.lens.dtype,
            "chunk": self.lens.chunk,
            "candidates": {"mass": MASS, "least": LEAST, "most": MOST},
            "prompt": self.prompt,
            "prompt_sha256": sha256_text(f"{self.template or ''}\n{self.prompt}"),
            "max_new_tokens": self.max_new_tokens,
            "batch_size": self.batch_size,
            "versions": versions(),
        }

    def inputs(self, pictures: Sequence[Any]) -> dict[str, Any]:
        prompts = [self.prompt] * len(pictures)
        return build_inputs(self.model, self.processor, pictures, prompts, template=self.template)

    def observe(self, keys: Sequence[str], inputs: dict[str, Any]) -> list[ImageObservations]:
        """Decode one batch greedily and turn it into observations, one per row."""
        observer = _Observer(Gatherer(self.lens, self.layers, kernel=self.kernel))
        with Tap(self.anatomy, observer), torch.no_grad():
            sequences = self.model.generate(
                **inputs,
                do_sample=False,
                num_beams=1,
                temperature=None,
                top_p=None,
                top_k=None,
                max_new_tokens=self.max_new_tokens,
            )
        if observer.trail is None:
            raise CalibrationError("generate made no forward pass")
        generated = sequences[:, -len(observer.steps) :]
        ids = torch.stack([step[0] for step in observer.steps], dim=1).cpu().numpy()
        keep = torch.stack([step[1] for step in observer.steps], dim=1).cpu().numpy()
        lengths = _lengths(generated, self.model.generation_config.eos_token_id)
        rows = []
        for row, evidence in enumerate(observer.gatherer.evidence(observer.trail)):
            if evidence is None:
                raise InputError(
                    "the calibration prompt holds no image", hint="put the image placeholder in the template"
                )
            rows.append(_row(keys[row], evidence, ids[row, : lengths[row]], keep[row, : lengths[row]]))
        return rows


def _row(key: str, evidence: Evidence, ids: Any, keep: Any) -> ImageObservations:
    token, count = count_candidates(ids, keep)
    return ImageObservations(key, token, count, evidence.values.cpu().numpy()[:, token])


def _lengths(generated: Tensor, eos: int | Sequence[int] | None) -> list[int]:
    """Steps of each row up to and including its end-of-sequence token."""
    ends = torch.tensor(
        [] if eos is None else [eos] if isinstance(eos, int) else list(eos), device=generated.device
    )
    stopped = torch.isin(generated, ends.to(generated.dtype))
    steps = generated.shape[1]
    first = torch.where(stopped.any(1), stopped.int().argmax(1) + 1, steps)
    return [int(length) for length in first]


def calibrate(
    model: Any,
    processor: Any,
    images: str | Path | Sequence[Any],
    *,
    layers: Sequence[int] = (-1,),
    out: str | Path | None = None,
    prompt: str = DESCRIBE,
    template: str | None = None,
    max_new_tokens: int = 512,
    batch_size: int = 1,
    dtype: str = "native",
    chunk: int = CHUNK,
    kernel: str = "auto",
    rule: str = "stable",
    show: bool | None = None,
    on_skip: Callable[[str, str], None] | None = None,
) -> Calibration:
    """Learn token references from unlabeled images.

    Args:
        images: A folder, a manifest file, or a list of paths, pictures or ``(name, picture)`` pairs.
        layers: Blocks to read, all in one run; -1 is the last.
        out: Folder for the result. The same call resumes an interrupted run there, and returns a finished one.
        batch_size: Images decoded together; part of the record, since padding can change rounding.
        dtype: "native" ranks the head's own logits, "float32" upcasts them first.
        rule: "stable" (the paper's), or "count-N".
        show: Show a progress bar; by default when a person looks.
        on_skip: Called with the name of each image that could not be read, and why.

    Raises:
        CalibrationError: No image could be read, or b0 is not positive.
        MismatchError: ``out`` holds a calibration with other settings.
    """
    if batch_size < 1 or max_new_tokens < 1:
        raise InputError(f"batch_size {batch_size} and max_new_tokens {max_new_tokens} must be at least 1")
    rule_named(rule)
    anatomy = find_anatomy(model)
    blocks = tuple(sorted({anatomy.check_layer(layer) for layer in layers}))
    lens = Lens(anatomy, dtype=dtype, chunk=chunk)
    job = _Job(model, processor, anatomy, lens, blocks, prompt, template, max_new_tokens, batch_size, kernel)
    corpus = open_corpus(images)
    made_with = job.made_with()
    folder = None if out is None else Path(out)
    asked = {"made_with": made_with, "corpus": corpus.hash, "rule": rule}
    if folder is not None and (folder / MANIFEST).is_file():
        return _finished(folder, asked, corpus)
    if folder is not None:
        _claim(folder, asked)
    found, skipped = _run(job, corpus, folder, show=show, on_skip=on_skip)
    if not found:
        raise CalibrationError(
            f"none of the {len(corpus)} images could be read, e.g. {skipped[0]['name']}: {skipped[0]['reason']}"
        )
    observations = collect(blocks, found)
    done = Calibration(observations, tables_of(observations, made_with, rule=rule), made_with, skipped)
    if folder is not None:
        done.save(folder)
        shutil.rmtree(folder / WORK)
    return done


def _run(
    job: _Job,
    corpus: Corpus,
    folder: Path | None,
    *,
    show: bool | None,
    on_skip: Callable[[str, str], None] | None,
) -> tuple[list[ImageObservations], list[dict[str, str]]]:
    found: list[ImageObservations] = []
    skipped: list[dict[str, str]] = []
    batches = [
        corpus.images[start : start + job.batch_size] for start in range(0, len(corpus), job.batch_size)
    ]
    parts = [
        None if folder is None else folder / WORK / f"part-{number:06d}.safetensors"
        for number in range(len(batches))
    ]
    missing = [number for number, part in enumerate(parts) if part is None or not part.is_file()]
    done = len(corpus) - sum(len(batches[number]) for number in missing)
    prepared = _prepared([batches[number] for number in missing], job)
    with bar("calibrating", total=len(corpus), done=done, unit="image", show=show) as progress:
        for number, part in enumerate(parts):
            if part is not None and part.is_file():
                rows, unread = _read_part(part, job.layers)
            else:
                keys, inputs, unread = next(prepared)
                rows = job.observe(keys, inputs) if keys else []
                if part is not None:
                    _write_part(part, job.layers, rows, unread)
                for skip in unread:
                    if on_skip is not None:
                        on_skip(skip["name"], skip["reason"])
                progress.update(len(batches[number]))
            found += rows
            skipped += unread
    return found, skipped


Prepared = tuple[list[str], dict[str, Any], list[dict[str, str]]]


def _prepared(batches: Sequence[Sequence[CorpusImage]], job: _Job) -> Iterator[Prepared]:
    """Inputs of each batch, decoded one batch ahead of the model in another thread."""

    def prepare(batch: Sequence[CorpusImage]) -> Prepared:
        keys, pictures, unread = [], [], []
        for image in batch:
            try:
                pictures.append(image.read())
                keys.append(image.key)
            except ImageError as error:
                unread.append({"name": image.name, "reason": error.message})
        return keys, (job.inputs(pictures) if pictures else {}), unread

    with ThreadPoolExecutor(max_workers=1) as pool:
        ahead: Future[Prepared] | None = None
        for number, batch in enumerate(batches):
            current = ahead or pool.submit(prepare, batch)
            ahead = pool.submit(prepare, batches[number + 1]) if number + 1 < len(batches) else None
            yield current.result()


def _write_part(
    path: Path, layers: Sequence[int], rows: list[ImageObservations], unread: list[dict[str, str]]
) -> None:
    """One finished batch in one file: numbers, keys and skipped images together, so that it is whole or absent."""
    batch = collect(layers, rows)
    page = json.dumps({"images": batch.images, "skipped": unread}).encode()
    arrays = {name: getattr(batch, name) for name in ARRAYS}
    write_tensors(path, {**arrays, "page": np.frombuffer(page, dtype=np.uint8)})


def _read_part(path: Path, layers: Sequence[int]) -> tuple[list[ImageObservations], list[dict[str, str]]]:
    arrays = read_tensors(path)
    page = json.loads(arrays["page"].tobytes())
    batch = Observations(tuple(layers), tuple(page["images"]), *(arrays[name] for name in ARRAYS))
    return split(batch), page["skipped"]


def _claim(folder: Path, job: dict[str, Any]) -> None:
    """Make the folder this job's own, or refuse if another job began there."""
    page = folder / WORK / "job.json"
    if page.is_file():
        _refuse_other(folder, read_json(page), job)
    else:
        write_json(page, job)


def _finished(folder: Path, asked: dict[str, Any], corpus: Corpus) -> Calibration:
    done = Calibration.load(folder)
    total = len(done.observations.images) + len(done.skipped)
    expected = (
        corpus.hash if total == len(corpus) and corpus.holds(done.observations.images) else "other images"
    )
    rules = sorted({str(table.made_with["rule"]) for table in done.tables.values()})
    _refuse_other(folder, {"made_with": done.made_with, "corpus": expected, "rule": ",".join(rules)}, asked)
    return done


def _refuse_other(folder: Path, there: dict[str, Any], asked: dict[str, Any]) -> None:
    old, new = _flat(there), _flat(asked)
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            raise MismatchError(
                f"{folder} holds a calibration with another {key}: {old.get(key)!r} there, {new.get(key)!r} asked for",
                hint="choose another folder, or remove that one",
            )


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{prefix}{key}.") if isinstance(item, dict) else {f"{prefix}{key}": item}
    return flat
