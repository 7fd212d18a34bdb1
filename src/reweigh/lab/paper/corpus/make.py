"""Making a study corpus: one greedy pass over an image set, shard by shard, that resumes where it was stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from reweigh.calibration.ahead import Prepared, build_ahead, prepare, read
from reweigh.calibration.corpus import Corpus, CorpusImage
from reweigh.calibration.settings import greedy_settings
from reweigh.engines.transformers.observe import Trajectory, follow
from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy, find_anatomy
from reweigh.families.identity import identify
from reweigh.families.processor import prompt_hash
from reweigh.families.prompts import build_inputs
from reweigh.files.artifacts import only_one, sha256_file
from reweigh.images import read_image
from reweigh.lab.paper.corpus.image import Mention, StudyImage, onset
from reweigh.lab.paper.corpus.reading import read_image_states
from reweigh.lab.paper.corpus.store import MANIFEST, Making, StudyCorpus
from reweigh.lab.runs.record import find_image
from reweigh.lab.runs.task import Task
from reweigh.lab.tasks.types import Id, Response
from reweigh.method.lens import Lens
from reweigh.progress import bar
from reweigh.provenance import versions
from reweigh.tables.table import ReferenceTable, candidate_rule
from reweigh.text import Template, replace_surrogates, token_ends

SHARD = 25
"""Images of a shard, rounded up to whole batches."""

FindMentions = Callable[[Id, str], Sequence[dict[str, Any]]]
"""The scorer's mentions in the answer to one image: ``word, object, start, end, hallucinated``."""


@dataclass(frozen=True)
class ImageSet:
    """Images in their order, and what is asked about each.

    Attributes:
        images: The images.
        ids: What the benchmark calls each.
        prompt: The question.
        max_new_tokens: Longest answer.
        mentions: Finds the objects that an answer names; None for a set without ground truth.
        about: Where the set comes from, for the record.
    """

    images: Corpus
    ids: tuple[Id, ...]
    prompt: str
    max_new_tokens: int
    mentions: FindMentions | None = None
    about: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of_corpus(cls, corpus: Corpus, *, prompt: str, max_new_tokens: int) -> ImageSet:
        """Ask about a calibration corpus."""
        return cls(corpus, tuple(image.name for image in corpus.images), prompt, max_new_tokens)

    @classmethod
    def of_task(cls, task: Task) -> ImageSet:
        """Ask the records of a benchmark that scores descriptions; all must have the same question."""
        asked = {(record.prompt, record.max_new_tokens) for record in task.records}
        names = [record.image for record in task.records]
        if len(asked) != 1 or len(set(names)) != len(names):
            raise InputError(
                f"{task.name} asks {len(asked)} different questions about {len(set(names))} images",
                hint="a study needs one question for all images; choose world or chair",
            )
        [(prompt, longest)] = asked
        paths = [find_image(task.images, name) for name in names]
        images = Corpus(
            tuple(
                CorpusImage(name, sha256_file(path), partial(read_image, path))
                for name, path in zip(names, paths, strict=True)
            )
        )

        def mentions(identity: Id, text: str) -> Sequence[dict[str, Any]]:
            [item], _ = task.bench.score([Response(identity, text)])
            found: list[dict[str, Any]] = item.details["mentions"]
            return found

        ids = tuple(record.id for record in task.records)
        return cls(images, ids, prompt, longest, mentions, {"benchmark": task.metadata})


def make_corpus(
    model: Any,
    processor: Any,
    images: ImageSet,
    folder: str | Path,
    *,
    table: ReferenceTable,
    seed: int,
    batch_size: int = 1,
    template: Template | None = None,
) -> StudyCorpus:
    """Describe an image set and keep what every study reads, at the table's layer and through its lens.

    The same call resumes a stopped corpus and opens a finished one.

    Args:
        table: Whose layer, lens dtype and chunk are used.
        seed: Draws the permutation of the positions' scales for each image.
        batch_size: Images decoded together; part of the record, since padding can change rounding.
    """
    anatomy = find_anatomy(model)
    made = table.about
    lens = anatomy.lens(dtype=str(made.get("lens", "native")), chunk=int(made.get("chunk", 288)))
    job = _Job(anatomy, processor, images, lens, table.layer, seed, batch_size, template)
    making = Making(Path(folder), job.record())
    with only_one(making.folder):
        making.claim()
        if (making.folder / MANIFEST).is_file():
            return StudyCorpus.open(folder)
        return making.finish(_write_shards(job, making))


@dataclass(frozen=True)
class _Job:
    """One pass: model, images, and how they are read."""

    anatomy: Anatomy
    processor: Any
    images: ImageSet
    lens: Lens
    layer: int
    seed: int
    batch_size: int
    template: Template | None

    def record(self) -> dict[str, Any]:
        """Return everything that the corpus depends on."""
        return {
            "identity": identify(self.anatomy, self.processor).summary(),
            "layer": self.layer,
            "lens": self.lens.mode,
            "dtype": self.lens.dtype,
            "chunk": self.lens.chunk,
            "vocab_size": self.lens.vocab_size,
            "candidates": candidate_rule(),
            "prompt": self.images.prompt,
            "prompt_sha256": prompt_hash(self.processor, self.images.prompt, self.template),
            "max_new_tokens": self.images.max_new_tokens,
            "generation": greedy_settings(self.anatomy.language_model.generation_config),
            "images": {"sha256": self.images.images.hash, "count": len(self.images.images)},
            **self.images.about,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "versions": versions(),
        }

    def inputs(self, pictures: Sequence[Any]) -> dict[str, Any]:
        prompts = [self.images.prompt] * len(pictures)
        return build_inputs(self.anatomy.model, self.processor, pictures, prompts, template=self.template)

    def batch(self, prepared: Prepared, numbers: dict[str, int]) -> list[StudyImage]:
        """Decode and read one batch."""
        if not prepared.keys:
            return []

        def read_row(row: int, states: Tensor) -> dict[str, Any]:
            number = numbers[prepared.keys[row]]
            return read_image_states(self.lens, states, seed=self.seed, number=number)

        found = follow(
            self.anatomy,
            self.layer,
            prepared.inputs,
            read_row,
            max_new_tokens=self.images.max_new_tokens,
        )
        return [self.image(key, numbers[key], row) for key, row in zip(prepared.keys, found, strict=True)]

    def image(self, key: str, number: int, said: Trajectory) -> StudyImage:
        """Put together what is kept of one image."""
        identity = self.images.ids[number]
        tokens = said.tokens.tolist()
        text = replace_surrogates(self._decode(tokens).strip())
        sizes = [len(step) for step in said.candidates]
        return StudyImage(
            number,
            identity,
            key,
            text,
            said.tokens,
            said.probability,
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.concatenate(said.candidates),
            np.concatenate(said.logits),
            **said.reading,
            mentions=self._mentions(identity, text, tokens),
        )

    def _mentions(self, identity: Id, text: str, tokens: list[int]) -> tuple[Mention, ...]:
        rows = [] if self.images.mentions is None else self.images.mentions(identity, text)
        ends = token_ends(tokens, self._decode) if rows else []
        return tuple(Mention(**row, onset=onset(ends, row["start"])) for row in rows)

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self.processor.batch_decode([list(tokens)], skip_special_tokens=True)[0])


def _write_shards(job: _Job, making: Making) -> int:
    """Write the missing shards and return how many there are; pictures are read ahead of the model."""
    if job.batch_size < 1:
        raise InputError(f"batch_size {job.batch_size} must be at least 1")
    every = job.images.images.images
    numbers = {image.key: number for number, image in enumerate(every)}
    batches = [every[start : start + job.batch_size] for start in range(0, len(every), job.batch_size)]
    many = -(-SHARD // job.batch_size)  # batches of a shard: whole ones, as calibration cuts them
    shards = [batches[start : start + many] for start in range(0, len(batches), many)]
    missing = {number: shard for number, shard in enumerate(shards) if not making.is_written(number)}
    left = [batch for shard in missing.values() for batch in shard]
    ahead = build_ahead(left, read, lambda batch: prepare(batch, job.inputs))
    done = len(every) - sum(map(len, left))
    title = f"reading {making.folder.name} images"
    with closing(ahead), bar(title, total=len(every), done=done, unit="image") as progress:
        for number, shard in missing.items():
            images, skipped = [], []
            for batch in shard:
                prepared = next(ahead)
                images += job.batch(prepared, numbers)
                skipped += prepared.skipped
                progress.update(len(batch))
            making.write(number, images, skipped)
    return len(shards)
