"""CHAIR as a benchmark: 500 COCO images to describe, captions to object hallucination figures."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from reweigh.errors import InputError, require_known
from reweigh.lab.bootstrap import sum_counts
from reweigh.lab.tasks.base import Benchmark, Id, Item, Record, Response, Summary
from reweigh.lab.tasks.chair.mentions import MentionFinder, Variant, Vocabulary
from reweigh.lab.tasks.chair.metrics import METRICS, caption_item, figures
from reweigh.lab.tasks.chair.truth import CocoTruth, ReadyTruth, read_manifest, sample_images
from reweigh.lab.tasks.coco import COCO_FOLDER, COCO_TRAIN2014, COCO_URL, COCO_VAL2014, Coco, image_names
from reweigh.lab.tasks.data import Dataset, File, folder_of, require_file
from reweigh.lab.tasks.language import Language, language
from reweigh.text import DESCRIBE, whole_sentences

MAX_NEW_TOKENS = 512
IMAGES = 500

_SOURCE = "https://raw.githubusercontent.com/LisaAnne/Hallucination/d0e65fefe9d780a641126b4eccdb003ca99a4858"
DATASET = Dataset(
    name="chair",
    title="CHAIR: synonym table and COCO 2014 annotations",
    license="table BSD-2-Clause, annotations CC BY 4.0",
    page="https://github.com/LisaAnne/Hallucination",
    files=(
        File(
            name="synonyms.txt",
            url=f"{_SOURCE}/data/synonyms.txt",
            size=3577,
            checksum="sha256:b685537b36fe21b791c87151b96a991ceb582edff19f3da204dcc7a7905502f2",
        ),
        File(
            name="annotations_trainval2014.zip",
            url=f"{COCO_URL}/annotations/annotations_trainval2014.zip",
            size=252_872_794,
            checksum="md5:0a379cfc70b0e71301e0f377548639bd",
            holds=(
                "annotations/captions_train2014.json",
                "annotations/captions_val2014.json",
                "annotations/instances_train2014.json",
                "annotations/instances_val2014.json",
            ),
        ),
    ),
    by_hand="the images are the dataset coco-val2014",
    shared=COCO_FOLDER,
)


@dataclass(eq=False, repr=False)
class CHAIR(Benchmark):
    """Object hallucination in captions of COCO images.

    Args:
        data_dir: Folder with ``synonyms.txt`` and COCO's annotation files, also in subfolders.
        variant: ``wordnet``, as most papers score, or ``pattern``, as the original did.
        ground_truth: A ready ground-truth file, instead of COCO's annotations.
        synonyms: The synonym table, if it is not in ``data_dir``.
        year: Which annotation files to use; by default 2014, else 2017.
        split: Which split the records are drawn from.
        images: How many images are drawn.
        manifest: A file of image ids to use instead of a draw.
        cut: What to do with a last sentence that the limit of tokens cut: ``keep`` or ``drop`` it.
        backend: The language tools, instead of those over the installed data.
    """

    name = "chair"
    title = "CHAIR"
    dataset = DATASET
    image_dataset = COCO_VAL2014
    metrics = METRICS
    tuning_options: ClassVar[Mapping[str, Any]] = {"split": "train"}
    figures = staticmethod(figures)

    _: KW_ONLY
    variant: Variant = "wordnet"
    ground_truth: str | Path | None = None
    synonyms: str | Path | None = None
    year: str | None = None
    split: str = "val"
    images: int = IMAGES
    manifest: str | Path | None = None
    cut: str = "keep"
    backend: Language | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_known("way to treat cut sentences", [self.cut], ["keep", "drop"])
        if self.images < 1:
            raise InputError(f"cannot draw {self.images} images", hint="give a whole number, 1 or more")

    @property
    def own_images(self) -> Path | None:
        """The training images, if the records are drawn from them and ``reweigh data`` has fetched them."""
        folder = folder_of(COCO_TRAIN2014)
        return folder if self.split == "train" and (folder / "train2014").is_dir() else None

    @cached_property
    def finder(self) -> MentionFinder:
        """The reader of captions."""
        path = self.synonyms or require_file(self.data_dir, "synonyms.txt", benchmark="chair")
        return MentionFinder(Vocabulary.read(path), self.variant, self.backend or language())

    def objects(self, text: str) -> list[str]:
        return [mention.category for mention in self.finder.read(text).mentions]

    @cached_property
    def truth(self) -> CocoTruth | ReadyTruth:
        """The reference objects."""
        finder = self.finder
        if self.ground_truth is not None:
            return ReadyTruth(self.ground_truth, finder.vocabulary, variant=self.variant)
        return CocoTruth(self._coco, finder)

    @cached_property
    def _coco(self) -> Coco:
        return Coco(self.data_dir, year=self.year, split=self.split)

    def records(self, *, limit: int | None = None, seed: int = 42) -> list[Record]:
        """List the images to describe: the manifest's, or a draw by seed from the split."""
        if self.manifest is not None:
            self._coco.complete()
            everywhere = {
                key: name for split in self._coco.image_file.values() for key, name in split.items()
            }
            files, chosen = everywhere, read_manifest(self.manifest)
            if unknown := [identity for identity in chosen if identity not in files]:
                raise InputError(f"the manifest {self.manifest} contains the unknown image {unknown[0]}")
        else:
            files = self._coco.image_file.get(self.split, {})
            if not files:
                raise InputError(f"the annotations in {self.data_dir} have no split called {self.split!r}")
            chosen = sample_images(files, count=self.images, seed=seed)
        return [
            Record(id=identity, image=files[identity], prompt=DESCRIBE, max_new_tokens=MAX_NEW_TOKENS)
            for identity in chosen[:limit]
        ]

    def asked_ids(self) -> Collection[Id] | None:
        """Return the images of the manifest; without one, any images may be described."""
        return None if self.manifest is None else read_manifest(self.manifest)

    def known_ids(self) -> Collection[Id]:
        return self.truth.ids()

    def score(
        self, responses: Sequence[Response], *, ids: Collection[Id] | None = None
    ) -> tuple[list[Item], Summary]:
        self.truth.require({response.id for response in responses})
        return super().score(responses, ids=ids)

    def score_response(self, response: Response) -> Item:
        text = response.text if self.cut == "keep" else whole_sentences(response.text)
        reading = self.finder.read(text)
        found = [(one.word, one.category, one.start, one.end) for one in reading.mentions]
        item = caption_item(response.id, text, found, self.truth.objects(int(response.id)))
        return replace(item, counts={**item.counts, "tokens": len(reading.words)})

    def official(self, items: Sequence[Item]) -> Mapping[str, float | None]:
        """Compute what the published scorer prints: percent with one decimal; its Len counts tokens after merging."""
        total = sum_counts(items)
        shares = {
            "CHAIRs": ("hallucinated_captions", "captions"),
            "CHAIRi": ("hallucinated_mentions", "mentions"),
            "Recall": ("recovered", "reference"),
            "Len": ("tokens", "captions"),
        }
        printed: dict[str, float | None] = {}
        for name, (top, bottom) in shares.items():
            # The published scorer multiplies the length by 0.01, so that it can be printed as percent.
            count = total.get(top, 0.0) * (0.01 if name == "Len" else 1)
            whole = total.get(bottom, 0.0)
            printed[name] = float(f"{count / whole * 100:.1f}") if whole else None
        return printed

    def describe(self, items: Sequence[Item]) -> dict[str, Any]:
        return {
            "split": self.split,
            "variant": self.variant,
            "cut": self.cut,
            "language": self.finder.describe(),
            "vocabulary": self.finder.vocabulary.sha256,
            "ground_truth": self.truth.describe(),
        }

    @classmethod
    def image_names(cls, image: Id) -> list[str]:
        return image_names(image) if isinstance(image, int) else super().image_names(image)
