"""What is damaged: each kind of file as this package writes or reads it, and what a reader makes of it.

A reader returns what it understood, or raises. ``None`` is "not trusted, made again" (caches). Two readings agree by
``==``; of inputs that belong to the user (images, manifests), which carry no seal, a reading is a mapping from the hash
under which a record knows the input to its content, and a hash must never stand for two contents.
"""

from __future__ import annotations

import hashlib
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from answering import answer, arm, toy_runs
from reweigh.calibration.corpus import CorpusImage, open_corpus
from reweigh.calibration.result import Calibration
from reweigh.engines.answer import Answer
from reweigh.files.outputs import claim, write_output
from reweigh.files.seals import sha256_tensors
from reweigh.job import PLACES, Job
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame, Row
from reweigh.lab.paper.analyses import STUDIES
from reweigh.lab.paper.corpus.image import pack
from reweigh.lab.paper.corpus.store import StudyCorpus
from reweigh.lab.paper.folder import read_study, write_study
from reweigh.lab.paper.measured import read_results
from reweigh.lab.paper.study import Outcome
from reweigh.lab.read import read
from reweigh.lab.runs.results import read_scored
from reweigh.lab.runs.score import read_sources, score, write_scores
from reweigh.lab.study import Answered, Arm, Batch, Study
from reweigh.lab.tasks.base import BENCHMARKS
from reweigh.lab.tasks.judge import CachedJudge, Request
from reweigh.lab.views.report import write_frame
from reweigh.rivals.tools.vectors import SteeringVectors
from reweigh.tables.observations import ImageObservations
from reweigh.tables.point import OperatingPoint
from reweigh.tables.store import record_point
from reweigh.tables.table import ReferenceTable
from toy_benchmark import Toy

GOLDENS = Path(__file__).parents[1] / "goldens" / "folders"

Reading = Any


@dataclass(frozen=True)
class Target:
    """A folder of files, made once, and how it is read."""

    name: str
    make: Callable[[Path], None]
    read: Callable[[Path], Reading]
    pattern: str = "**/*"

    def files(self, folder: Path) -> list[Path]:
        """The files that are damaged, one at a time."""
        return sorted(path for path in folder.glob(self.pattern) if path.is_file() and path.name != ".lock")


IMAGES = [CorpusImage(f"{name}.png", "0" * 64, lambda: None) for name in "ab"]  # type: ignore[arg-type,return-value]
LAYERS = (1, 3)
MADE_WITH = {
    "identity": {"model_id": "me/model", "weights": {"w": "float32 2 AAAA"}, "blocks": 4},
    "dtype": "float32",
    "candidates": {"mass": 0.9, "least": 2, "most": 50},
    "layers": list(LAYERS),
}


def observations() -> list[ImageObservations]:
    """Two images that saw the same tokens often enough to be registered."""
    dice = np.random.default_rng(0)
    found = []
    for image in IMAGES:
        values = dice.uniform(0.001, 0.01, (len(LAYERS), 12)).astype(np.float32)
        found.append(ImageObservations(image.key, np.arange(3, 15), np.full(12, 4), values))
    return found


def make_calibration(folder: Path) -> None:
    identity = {name: value for name, value in MADE_WITH["identity"].items() if name != "model_id"}  # type: ignore[attr-defined]
    record = {
        "about": {**MADE_WITH, "identity": identity},
        "rule": "count-5",
        PLACES: {"model": "me/model"},
    }
    with Job.open(folder, record, parts=2) as job:
        for part, seen in enumerate(observations()):
            job.append(part, [seen.to_row()])
        Calibration.of_job(job)


def read_calibration(folder: Path) -> Reading:
    done = Calibration.load(folder)
    return [
        {layer: table.fingerprint for layer, table in done.tables.items()},
        done.about,
        done.observations.images,
    ] + [getattr(done.observations, name).tolist() for name in ("image", "token", "count", "values")]


def read_table(folder: Path) -> Reading:
    return ReferenceTable.from_pretrained(folder, layer=3).fingerprint


def make_run(folder: Path) -> None:
    if "toy" not in BENCHMARKS:
        BENCHMARKS.add("toy", Toy)
    runs = toy_runs(folder.parent / "pictures", batch_size=1)
    answer(runs, lambda batch: [Answer(f"a dog {batch.start}")], folder)


def read_run(folder: Path) -> Reading:
    """As scoring and resuming read it: a run that lost its end is unfinished, which scoring refuses."""
    source = read_sources([folder])
    items, _ = score(Toy(folder), source)
    return [(row.id, row.text) for row in source.responses], [item.to_json() for item in items], source.record


def make_scored(folder: Path) -> None:
    make_run(folder)
    source = read_sources([folder])
    items, summary = score(Toy(folder), source)
    write_scores(folder, items, summary, source, benchmark=Toy(folder))


def read_scored_run(folder: Path) -> Reading:
    run = read_scored(folder)
    return [item.to_json() for item in run.items], run.texts, run.results, run.record, run.questions


def make_images(folder: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (12, 16, 3), dtype=np.uint8)
    for kind in ("bmp", "gif", "jpeg", "png", "tiff", "webp"):
        Image.fromarray(pixels).save(folder / f"a.{kind}")


def read_images(folder: Path) -> Reading:
    """Every image under the key by which records know it."""
    found = {}
    for image in open_corpus(folder).images:
        picture = image.read()
        assert picture.mode == "RGB"
        found[image.key] = hashlib.sha256(picture.tobytes()).hexdigest()
    assert len(found) == 6, "an image is neither read nor refused"
    return ByKey(found)


class ByKey(dict):  # type: ignore[type-arg]
    """Contents by the hash that stands for them; two agree if no hash stands for two contents."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and all(self[key] == other[key] for key in self.keys() & other.keys())

    __hash__ = None  # type: ignore[assignment]


def make_manifest(folder: Path) -> None:
    for name in ("a.png", "b.png"):
        Image.new("RGB", (4, 4)).save(folder / name)
    (folder / "list.json").write_text('["a.png", {"image": "b.png"}]')
    (folder / "list.jsonl").write_text('"a.png"\n{"image": "b.png"}\n')
    (folder / "list.txt").write_text("a.png\nb.png\n")


def read_manifest(folder: Path) -> Reading:
    return ByKey(
        {
            (corpus := open_corpus(path)).hash: [image.key for image in corpus.images]
            for path in folder.glob("list.*")
        }
    )


class Silent:
    """A judge that says nothing, so that a kept verdict can be told from a new one."""

    def describe(self) -> dict[str, Any]:
        return {"model": "m"}

    def ask(self, request: Any) -> str:
        return ""


class Kind(Silent):
    def ask(self, request: Any) -> str:
        return "Rating: 6"


def make_verdict(folder: Path) -> None:
    CachedJudge(Kind(), folder).ask(Request("how good?"))


def read_verdict(folder: Path) -> Reading:
    return CachedJudge(Silent(), folder).ask(Request("how good?")) or None


def make_point(folder: Path) -> None:
    make_calibration(folder)
    record_point(folder, OperatingPoint(3, 3.5, "tuned", 300))


def read_tuned(folder: Path) -> Reading:
    return ReferenceTable.from_pretrained(folder, layer=3).point


def make_vectors(folder: Path) -> None:
    dice = np.random.default_rng(0)
    vectors, direction = dice.normal(size=(2, 4, 8)).astype(np.float32)
    subspace = np.linalg.qr(dice.normal(size=(4, 8, 2)))[0].transpose(0, 2, 1).astype(np.float32)
    SteeringVectors(vectors, direction, subspace, 5, 2, 3, MADE_WITH).save_pretrained(folder)


def make_frame(folder: Path) -> None:
    rows = [
        Row({"arm": arm, "figure": "chair_i"}, Estimate(17.1 - n, 16.0 - n, 18.2 - n))
        for n, arm in enumerate("abc")
    ]
    write_frame(Frame(rows, {"model": "m", "beta": 3.5}), folder)


def read_frame(folder: Path) -> Reading:
    return read(folder).to_json()


def study(folder: Path) -> Study:
    """Two arms with notes on their batches, as costs and edits are."""
    if "toy" not in BENCHMARKS:
        BENCHMARKS.add("toy", Toy)
    runs = toy_runs(folder.parent / "pictures", limit=5)

    def made(text: str) -> Arm:
        def ask(batch: Batch) -> Answered:
            return Answered([Answer(text) for _ in batch.records], {"seconds": len(batch.records) / 8})

        return arm(text[-3:], ask)

    return Study([runs], [made("a dog"), made("a bus")], folder, reference="dog")


def make_experiment(folder: Path) -> None:
    study(folder).run()


def read_experiment(folder: Path) -> Reading:
    """As the same command takes it up again."""
    made = study(folder)
    return made.run().to_json(), [made.notes(made.tasks[0], one) for one in made.arms]


def make_numbers(folder: Path) -> None:
    for name in ("ablation", "comparison"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(GOLDENS / name / "frame.json", folder / name)


def read_numbers(folder: Path) -> Reading:
    """As the paper's pages read them; a folder without a frame holds nothing."""
    return read_results([folder / "ablation", folder / "comparison"])


def make_study(folder: Path) -> None:
    frame = Frame([Row({"group": "a"}, Estimate(1.5, 1.0, 2.0)), Row({"group": "b"}, Estimate(2.5))])
    write_study(
        folder / "scale",
        Outcome(STUDIES["scale"], Frame(), ("Nothing.",), "too few images"),
        Made(),
        "0" * 64,
    )
    write_study(folder / "allocation", Outcome(Silenced, frame, ("A sentence.",)), Made(), "0" * 64)


class Silenced(STUDIES["allocation"]):  # type: ignore[misc]
    """A study whose figure and list are not drawn here."""

    panels = ()

    def extras(self, frame: Any, material: Any, folder: Path) -> None: ...


class Made:
    """What a study was computed from."""

    def record(self) -> dict[str, Any]:
        return {"identity": {"model_id": "m"}, "images": {"evaluation": 40}, "layer": 2, "beta": 3.5}


def read_studies(folder: Path) -> Reading:
    """Both studies; one that is not as it was written is computed again."""
    found = [read_study(folder / name, STUDIES[name], "0" * 64) for name in ("scale", "allocation")]
    return (
        None if None in found else [(one.frame.to_json(), one.sentences, one.unmet) for one in found if one]
    )


def make_corpus(folder: Path) -> None:
    unread = shutil.ignore_patterns("pieces.json")  # an earlier version's
    shutil.copytree(GOLDENS / "corpus" / "corpus" / "evaluation", folder, dirs_exist_ok=True, ignore=unread)


def read_corpus(folder: Path) -> Reading:
    corpus = StudyCorpus.open(folder)
    arrays = [pack([image]) for image in corpus]
    return (
        corpus.record,
        corpus.skipped,
        [(sha256_tensors(one), about) for one, about in arrays],
    )


def make_outputs(folder: Path) -> None:
    for name in ("page.md", "page.html"):
        write_output(folder / name, f"an output of ours, {name}\n" * 9)


def read_outputs(folder: Path) -> Reading:
    """What may be replaced: only what was written."""
    paths = [folder / name for name in ("page.md", "page.html")]
    claim(paths)
    return [path.read_bytes() for path in paths]


TARGETS = (
    Target("table", make_calibration, read_table, "layer-3.safetensors"),
    Target("calibration", make_calibration, read_calibration),
    Target("run", make_run, read_run),
    Target("scored run", make_scored, read_scored_run),
    Target("image", make_images, read_images),
    Target("manifest", make_manifest, read_manifest, "list.*"),
    Target("verdict", make_verdict, read_verdict),
    Target("operating point", make_point, read_tuned, "layer-3.safetensors"),
    Target(
        "steering vectors", make_vectors, lambda folder: SteeringVectors.load(folder).fingerprint, "steering*"
    ),
    Target("frame", make_frame, read_frame),
    Target("experiment", make_experiment, read_experiment),
    Target("ablation, comparison", make_numbers, read_numbers),
    Target("study", make_study, read_studies),
    Target("study corpus", make_corpus, read_corpus),
    Target("outputs", make_outputs, read_outputs),
)


def quietly(read: Callable[[Path], Reading], folder: Path) -> Reading:
    """Read without warnings of decoders on the terminal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read(folder)
