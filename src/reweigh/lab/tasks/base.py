"""The base class of benchmarks, and their registry.

A benchmark describes itself: title, data, images and metrics are attributes of its class. A new one is added in one
place, as a subclass registered in :data:`BENCHMARKS` or by the entry-point group ``reweigh.benchmarks``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from reweigh.errors import InputError
from reweigh.lab.bootstrap import Array, intervals
from reweigh.lab.tasks.responses import check_questions, check_responses, read_responses
from reweigh.lab.tasks.types import Id, Item, MetricInfo, Question, Record, Response, Summary, find_metric
from reweigh.registry import Registry

if TYPE_CHECKING:
    from reweigh.lab.tasks.data import Dataset

__all__ = [
    "BENCHMARKS",
    "AskingBenchmark",
    "Benchmark",
    "Id",
    "Item",
    "MetricInfo",
    "Question",
    "Record",
    "Response",
    "Summary",
    "check_questions",
    "check_responses",
    "find_benchmark",
    "find_metric",
    "read_responses",
]

HEADLINES = 5


@dataclass(eq=False, repr=False)
class Benchmark(ABC):
    """A benchmark over the user's copy of its data.

    A subclass needs a ``name``, ``records``, ``score_response`` and ``figures``; everything else has a default.
    Keyword arguments of its constructor are its options (scorer variant, parser), which a run records.

    Args:
        data_dir: Folder of the benchmark's own files, read only when records or scores are wanted.
    """

    name: ClassVar[str]
    """The name in the registry, in records and in results."""

    title: ClassVar[str] = ""
    """The name as papers write it; by default ``name``."""

    dataset: ClassVar[Dataset | None] = None
    """Its files, for ``reweigh data``; without one, they are expected in a folder called ``name``."""

    image_dataset: ClassVar[Dataset | None] = None
    """The dataset of its images, if they are separate from its files."""

    draws_images: ClassVar[bool] = False
    """Whether it needs no files and draws its images itself, into ``data_dir``."""

    judged: ClassVar[bool] = False
    """Whether a judge rates the answers; the constructor then takes judge, prompt, rules and concurrency."""

    metrics: ClassVar[Sequence[MetricInfo]] = ()
    """Its figures and how to read them, in the order in which they are shown."""

    yes_no: ClassVar[bool] = False
    """Whether it asks yes/no questions, for which a comparison adds controls."""

    tuning_options: ClassVar[Mapping[str, Any]] = {}
    """Options that select records for tuning, disjoint from those used to report results."""

    data_dir: Path = Path(".")

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.title = cls.title or getattr(cls, "name", "")

    def __post_init__(self) -> None:
        self.data_dir = Path(self.data_dir)

    @property
    def own_images(self) -> Path | None:
        """Folder of the images, where an option of the benchmark names it."""
        return None

    @abstractmethod
    def records(self, *, limit: int | None = None, seed: int = 42) -> list[Record]:
        """List the questions, in a fixed order; ``seed`` matters only where the benchmark samples."""

    @staticmethod
    @abstractmethod
    def figures(counts: Mapping[str, Array]) -> Mapping[str, Array]:
        """Compute every metric from summed counts; pure, since intervals and paired differences call it on resamples."""

    def score_response(self, response: Response) -> Item:
        """Count one response; needed unless ``score`` is overridden."""
        raise NotImplementedError(f"{type(self).__name__} defines neither score_response nor score")

    def objects(self, text: str) -> list[str]:
        """Return the objects that a text mentions, with repeats; for benchmarks that look for objects."""
        raise InputError(f"{self.name} does not look for objects in texts", hint="use world or chair")

    def known_ids(self) -> Collection[Id]:
        """Return the ids that may be answered; by default those of all records."""
        return [record.id for record in self.records()]

    def asked_ids(self) -> Collection[Id] | None:
        """Return the ids that a complete response file answers; None if any subset of the known ones will do."""
        return self.known_ids()

    def asked(self, identity: Id) -> Question | None:
        """Return what is asked under an id, to compare with the question, image and label in a response file."""
        return None

    def score(
        self, responses: Sequence[Response], *, ids: Collection[Id] | None = None
    ) -> tuple[list[Item], Summary]:
        """Score responses; with ``ids``, exactly these records must have been answered."""
        checked = check_responses(responses, known=self.known_ids(), ids=ids)
        items = [self.score_response(response) for response in checked]
        return items, self.summarize(items)

    def summarize(self, items: Sequence[Item]) -> Summary:
        """Compute the summary of items, for example those of all shards."""
        return Summary.of(
            items,
            benchmark=self.name,
            metrics=intervals(items, self.figures, undefined=lambda name: self.metric_info(name).undefined),
            scorer=self.describe(items),
            official=self.official(items),
        )

    def describe(self, items: Sequence[Item]) -> dict[str, Any]:
        """Name what the figures depend on besides the responses, and how many of these could not be read."""
        return {}

    def official(self, items: Sequence[Item]) -> Mapping[str, float | None]:
        """Compute the figures as the official program prints them, if it rounds or smooths them its own way."""
        return {}

    def remarks(self, texts: Sequence[str]) -> list[str]:
        """Say what a reader of the figures must know about the benchmark's data and these texts."""
        return []

    def close(self) -> None:  # noqa: B027 (a benchmark without a judge has nothing to release)
        """Release what scoring opened, such as connections to a judge."""

    @classmethod
    def read_responses(
        cls, path: Path, *, id_key: str | None = None, text_key: str | None = None
    ) -> list[Response]:
        """Read a response file; overridden by benchmarks that have an official file format."""
        return read_responses(path, id_key=id_key, text_key=text_key)

    @classmethod
    def image_names(cls, image: Id) -> list[str]:
        """List file names that an item's image may have, for items without a record."""
        return [image] if isinstance(image, str) else [f"{image}.jpg", f"{image}.png"]

    @classmethod
    def metric_info(cls, name: str) -> MetricInfo:
        """Describe a metric or a breakdown of one."""
        return find_metric(cls.metrics, name)

    @classmethod
    def headlines(cls, names: Sequence[str]) -> list[MetricInfo]:
        """Select the metrics that a reader looks for first; the first five if none is declared a headline."""
        wanted = [info.name for info in cls.metrics if info.headline] or list(names)[:HEADLINES]
        return [cls.metric_info(name) for name in wanted if name in names]


class AskingBenchmark(Benchmark):
    """A benchmark whose questions are in a file: a subclass defines ``questions`` instead of ``records``."""

    max_new_tokens: ClassVar[int]

    @property
    @abstractmethod
    def questions(self) -> Mapping[Any, Question]:
        """The questions by id, in the benchmark's order."""

    def records(self, *, limit: int | None = None, seed: int = 42) -> list[Record]:
        """List the questions verbatim, in the benchmark's order."""
        return [
            Record(id=key, image=one.image, prompt=one.text or "", max_new_tokens=self.max_new_tokens)
            for key, one in list(self.questions.items())[:limit]
        ]

    def known_ids(self) -> Collection[Id]:
        return self.questions.keys()

    def asked(self, identity: Id) -> Question | None:
        return self.questions.get(identity)


BENCHMARKS: Registry[type[Benchmark]] = Registry(
    "benchmark",
    {
        "chair": "reweigh.lab.tasks.chair.benchmark:CHAIR",
        "amber-generative": "reweigh.lab.tasks.amber.generative:AMBERGenerative",
        "amber-discriminative": "reweigh.lab.tasks.amber.discriminative:AMBERDiscriminative",
        "pope": "reweigh.lab.tasks.pope:POPE",
        "pope-aokvqa": "reweigh.lab.tasks.pope:POPEonAOKVQA",
        "pope-gqa": "reweigh.lab.tasks.pope:POPEonGQA",
        "objects": "reweigh.lab.tasks.objects:Objects",
        "objects-questions": "reweigh.lab.tasks.objects:ObjectsQuestions",
        "mmhal": "reweigh.lab.tasks.mmhal:MMHal",
        "mmvet": "reweigh.lab.tasks.mmvet:MMVet",
        "world": "reweigh.lab.tasks.world:World",
    },
    group="reweigh.benchmarks",
)


def find_benchmark(name: str) -> type[Benchmark]:
    """Find a benchmark's class by name; refuse objects that are not benchmarks."""
    found: object = BENCHMARKS[name]
    if not (isinstance(found, type) and issubclass(found, Benchmark)):
        raise InputError(
            f"{found!r} is registered as the benchmark {name!r} but is not a subclass of Benchmark",
            hint="derive it from reweigh.lab.tasks.Benchmark",
        )
    if (own := getattr(found, "name", None)) != name:
        raise InputError(
            f"{found.__name__} is registered as {name!r} but calls itself {own!r}",
            hint="make both names the same, because results are found by name",
        )
    return found
