"""Calibration: run the unmodified model greedily on unlabeled images and keep what its candidates' evidence was.

Work is cut into fixed batches; each finished batch is one file, so that a run killed at any moment goes on from there
and ends with the same bytes. One run serves several layers: all are read in the same prefill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from reweigh.artifacts import only_one, sha256_json
from reweigh.calibration.ahead import build_ahead
from reweigh.calibration.corpus import Corpus, open_corpus
from reweigh.calibration.decoding import greedy_settings
from reweigh.calibration.prepare import prepare, read
from reweigh.calibration.result import MANIFEST, Calibration, tables_of
from reweigh.calibration.resume import LOCK, Work, finished
from reweigh.engines.transformers.observe import observe
from reweigh.errors import CalibrationError, InputError, require_known
from reweigh.families.anatomy import Anatomy, find_anatomy
from reweigh.families.identity import identify
from reweigh.families.points import published_point
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.method.measure.lens import CHUNK, Lens
from reweigh.method.measure.readouts import DMRR, READOUTS
from reweigh.method.register.candidates import LEAST, MASS, MOST
from reweigh.method.register.observations import ImageObservations, collect
from reweigh.method.register.references import rule_named
from reweigh.progress import bar
from reweigh.provenance import versions


class Job(Protocol):
    """One calibration: model, what to read, and how to decode, on whatever engine."""

    @property
    def layers(self) -> tuple[int, ...]:
        """Blocks to read, ascending."""
        ...

    @property
    def batch_size(self) -> int:
        """Images decoded together."""
        ...

    @property
    def readout(self) -> str:
        """How logits become evidence."""
        ...

    def made_with(self) -> dict[str, Any]:
        """What every shard of this calibration shares, and every table carries."""
        ...

    def inputs(self, pictures: Sequence[Any]) -> dict[str, Any]:
        """The engine's inputs for some pictures."""
        ...

    def observe(self, keys: Sequence[str], inputs: dict[str, Any]) -> list[ImageObservations]:
        """Decode one batch greedily and turn it into observations, one per row."""
        ...


@dataclass(frozen=True)
class _Job:
    """A calibration of a transformers model."""

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
    readout: str

    def made_with(self) -> dict[str, Any]:
        """What every shard of this calibration shares, and every table carries."""
        template = self.template or getattr(self.processor, "chat_template", None)
        generation = greedy_settings(self.anatomy.speaker.generation_config)
        return {
            "identity": identify(self.anatomy, self.processor).to_json(),
            "layers": list(self.layers),
            "lens": self.lens.mode,
            "dtype": self.lens.dtype,
            "chunk": self.lens.chunk,
            "candidates": {"mass": MASS, "least": LEAST, "most": MOST},
            "prompt": self.prompt,
            "prompt_sha256": sha256_json([template, self.prompt]),
            "max_new_tokens": self.max_new_tokens,
            "batch_size": self.batch_size,
            "versions": versions(),
            **({"generation": generation} if generation else {}),
            **({} if self.readout == DMRR else {"readout": self.readout}),
        }

    def inputs(self, pictures: Sequence[Any]) -> dict[str, Any]:
        prompts = [self.prompt] * len(pictures)
        return build_inputs(self.model, self.processor, pictures, prompts, template=self.template)

    def observe(self, keys: Sequence[str], inputs: dict[str, Any]) -> list[ImageObservations]:
        """Decode one batch greedily and turn it into observations, one per row."""
        return observe(
            self.anatomy,
            self.lens,
            self.layers,
            keys,
            inputs,
            max_new_tokens=self.max_new_tokens,
            kernel=self.kernel,
            readout=self.readout,
        )


def calibrate(
    model: Any,
    processor: Any,
    images: str | Path | Sequence[Any],
    *,
    layers: Sequence[int] | None = None,
    out: str | Path | None = None,
    prompt: str = DESCRIBE,
    template: str | None = None,
    max_new_tokens: int = 512,
    batch_size: int = 1,
    dtype: str = "native",
    chunk: int = CHUNK,
    kernel: str = "auto",
    rule: str = "stable",
    readout: str = DMRR,
    show: bool | None = None,
    on_skip: Callable[[str, str], None] | None = None,
) -> Calibration:
    """Learn token references from unlabeled images.

    Args:
        images: A folder, a manifest file, or a list of paths, pictures or ``(name, picture)`` pairs.
        layers: Blocks to read, all in one run; -1 is the last. If not given, the paper's for this model, else the last.
        out: Folder for the result. The same call resumes an interrupted run there, and returns a finished one.
        batch_size: Images decoded together; part of the record, since padding can change rounding.
        dtype: "native" ranks the head's own logits, "float32" upcasts them first.
        rule: "stable" (the paper's), or "count-N".
        readout: How logits become evidence: the method's "dmrr", or prob, logprob, zscore, zprob for comparison.
        show: Show a progress bar; by default when a person looks.
        on_skip: Called with the name of each image that could not be read, and why.

    Raises:
        CalibrationError: No image could be read, the processor failed on some (they are named), or b0 is not positive.
        MismatchError: ``out`` holds a calibration with other settings.
    """
    if batch_size < 1 or max_new_tokens < 1:
        raise InputError(f"batch_size {batch_size} and max_new_tokens {max_new_tokens} must be at least 1")
    if layers is not None and not layers:
        raise InputError("no layer was given", hint="layers=[-1] reads the last block")
    rule_named(rule)
    require_known("readout", [readout], READOUTS)
    anatomy = find_anatomy(model)
    if layers is None:
        published = published_point(anatomy)
        layers = (-1,) if published is None else (published.layer,)
    blocks = tuple(sorted({anatomy.check_layer(layer) for layer in layers}))
    lens = Lens(anatomy.norm, anatomy.head, dtype=dtype, chunk=chunk)
    decoding = (prompt, template, max_new_tokens, batch_size)
    job = _Job(model, processor, anatomy, lens, blocks, *decoding, kernel, readout)
    return carry_out(job, images, out=out, rule=rule, show=show, on_skip=on_skip)


def carry_out(
    job: Job,
    images: str | Path | Sequence[Any],
    *,
    out: str | Path | None,
    rule: str,
    show: bool | None = None,
    on_skip: Callable[[str, str], None] | None = None,
) -> Calibration:
    """Observe the images of a corpus and register what they show; see ``calibrate``."""
    blocks, readout = job.layers, job.readout
    corpus = open_corpus(images)
    made_with = job.made_with()
    asked = {"made_with": made_with, "corpus": corpus.hash, "rule": rule}
    work = None if out is None else Work(Path(out), asked, blocks, readout)
    if work is not None and (work.folder / MANIFEST).is_file():
        return finished(work, corpus)
    with nullcontext() if work is None else only_one(work.folder, lock=LOCK):
        if work is not None and (work.folder / MANIFEST).is_file():  # finished while the lock was waited for
            return finished(work, corpus)
        if work is not None:
            work.claim()
        found, skipped = _run(job, corpus, work, show=show, on_skip=on_skip)
        if not found:
            raise CalibrationError(
                f"none of the {len(corpus)} images could be read, e.g. {skipped[0]['name']}: {skipped[0]['reason']}"
            )
        observations = collect(blocks, found, readout=readout)
        skipped.sort(key=lambda skip: skip["key"])  # as merging shards does
        done = Calibration(observations, tables_of(observations, made_with, rule=rule), made_with, skipped)
        if work is not None:
            done.save(work.folder)
            work.tidy()
    return done


def _run(
    job: Job,
    corpus: Corpus,
    work: Work | None,
    *,
    show: bool | None,
    on_skip: Callable[[str, str], None] | None,
) -> tuple[list[ImageObservations], list[dict[str, str]]]:
    found: list[ImageObservations] = []
    skipped: list[dict[str, str]] = []
    batches = [
        corpus.images[start : start + job.batch_size] for start in range(0, len(corpus), job.batch_size)
    ]
    missing = {number for number in range(len(batches)) if work is None or not work.part(number).is_file()}
    done = len(corpus) - sum(len(batches[number]) for number in missing)
    ahead = build_ahead(
        [batches[number] for number in sorted(missing)], read, lambda images: prepare(images, job.inputs)
    )
    with (
        closing(ahead),  # a run that ends early, whatever the reason, leaves no thread behind
        bar("calibrating", total=len(corpus), done=done, unit="image", show=show) as progress,
    ):
        for number, images in enumerate(batches):
            if work is not None and number not in missing:
                rows, unread = work.read_part(number, images)
            else:
                batch = next(ahead)
                rows, unread = job.observe(batch.keys, batch.inputs) if batch.keys else [], batch.skipped
                if work is not None:
                    work.write_part(number, rows, unread)
                for skip in unread:
                    if on_skip is not None:
                        on_skip(skip["name"], skip["reason"])
                progress.update(len(images))
            found += rows
            skipped += unread
    return found, skipped
