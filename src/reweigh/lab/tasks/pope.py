"""POPE: is this object in the image? Yes/no questions on COCO, A-OKVQA and GQA, read by any of four published parsers.

The published parsers differ a lot, so a figure means nothing without the parser's name. Yes is the positive class.
All figures come from the answers, including the yes-ratio, which one published program takes from the labels.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np

from reweigh.errors import InputError
from reweigh.lab.bootstrap import Array, ratio
from reweigh.lab.tasks.base import AskingBenchmark, Id, Item, MetricInfo, Question, Response
from reweigh.lab.tasks.coco import COCO_VAL2014
from reweigh.lab.tasks.data import Dataset, File, find_files, parsing, require_file
from reweigh.lab.tasks.responses import read_rows

SPLITS = ("random", "popular", "adversarial")
OUTCOMES = ("questions", "tp", "fp", "tn", "fn", "unparsed")
"""The counts that the figures are made of."""
NO_QUESTION = "no question of this kind was answered"
METRICS = (
    MetricInfo("accuracy", "higher", headline=True, undefined=NO_QUESTION),
    MetricInfo("precision", "higher", headline=True, undefined="no question of this kind was answered yes"),
    MetricInfo(
        "recall",
        "higher",
        headline=True,
        undefined="no question of this kind with the label yes was answered",
    ),
    MetricInfo(
        "f1",
        "higher",
        title="F1",
        headline=True,
        undefined="no question of this kind was answered yes, and none with the label yes was answered",
    ),
    MetricInfo("yes_ratio", headline=True, undefined=NO_QUESTION),
    MetricInfo("unparsed", "lower", undefined=NO_QUESTION),
)
"""The metrics of all answers; each split has the same, named ``popular_f1`` and so on."""

_POPE = (
    "https://raw.githubusercontent.com/AoiDragon/POPE/e3e39262c85a6a83f26cf5094022a782cb0df58d/output/coco"
)
"""The revision that LLaVA's evaluation and its successors use."""
_VCD = "https://raw.githubusercontent.com/DAMO-NLP-SG/VCD/d6568ff81b8fd306a49e630df44f2db5c2300191/experiments/data/POPE"
"""Where the questions on A-OKVQA and GQA are; POPE's own repository has those on COCO only."""
_VCD_PAGE = "https://github.com/DAMO-NLP-SG/VCD"


def _dataset(name: str, on: str, title: str, images: str, source: str, page: str, *sha256: str) -> Dataset:
    return Dataset(
        name=name,
        title=f"POPE: questions on {title}, three splits",
        license="MIT" if source == _POPE else "Apache-2.0",
        page=page,
        files=tuple(
            File(name=file, url=f"{source}/{file}", checksum=f"sha256:{one}")
            for file, one in zip((f"{on}_pope_{split}.json" for split in SPLITS), sha256, strict=True)
        ),
        by_hand=f"the images are the dataset {images}",
    )


GQA = Dataset(
    name="gqa",
    title="GQA images, for calibration and POPE",
    license="CC BY 4.0; images under Flickr terms",
    page="https://cs.stanford.edu/people/dorarad/gqa/download.html",
    files=(
        File(
            name="images.zip",
            url="https://downloads.cs.stanford.edu/nlp/data/gqa/images.zip",
            holds=("images",),
        ),
    ),
)


def read_llava(text: str, label: str) -> str:
    """Read as POPE and LLaVA do: first sentence without commas; the words No, not, no mean no, anything else yes."""
    words = text.split(".")[0].replace(",", "").split(" ")
    return "no" if {"No", "not", "no"} & set(words) else "yes"


def read_opera(text: str, label: str) -> str:
    """Read as OPERA and PAI do: whole text without stops and commas; No, not, no, NO and n't mean no."""
    words = text.replace(".", "").replace(",", "").split(" ")
    negative = {"No", "not", "no", "NO"} & set(words) or any(word.endswith("n't") for word in words)
    return "no" if negative else "yes"


def read_vcd(text: str, label: str) -> str:
    """Read as VCD does, knowing the label: correct if the label occurs anywhere, even "snow" for no."""
    return label if label in text.lower() else {"yes": "no", "no": "yes"}[label]


def read_lmms(text: str, label: str) -> str | None:
    """Read as lmms-eval does: exactly yes or no, ignoring case and outer blanks; anything else is neither."""
    answer = text.lower().strip()
    return answer if answer in ("yes", "no") else None


PARSERS: Mapping[str, Callable[[str, str], str | None]] = {
    "llava": read_llava,
    "opera": read_opera,
    "vcd": read_vcd,
    "lmms-eval": read_lmms,
}


@dataclass(frozen=True, slots=True)
class PopeQuestion(Question):
    """Is this object in the image? ``label`` says so, and ``split`` says how the object was chosen."""

    text: str
    label: str
    split: str


def figures(counts: Mapping[str, Array]) -> dict[str, Array]:
    """Compute the figures of all answers and of each split from summed counts; percent, NaN where undefined."""
    result: dict[str, Array] = {}
    for group in ("", *SPLITS):
        splits = (group,) if group else SPLITS
        sums = (np.sum([counts[f"{split}.{name}"] for split in splits], axis=0) for name in OUTCOMES)
        result |= {_name(group, name): value for name, value in yes_no_figures(*sums).items()}
    return result


def yes_no_figures(
    questions: Array, tp: Array, fp: Array, tn: Array, fn: Array, unparsed: Array
) -> dict[str, Array]:
    """Compute the figures of one group of answers."""
    return {
        "accuracy": ratio(tp + tn, questions),
        "precision": ratio(tp, tp + fp),
        "recall": ratio(tp, tp + fn),
        "f1": ratio(2 * tp, 2 * tp + fp + fn),
        "yes_ratio": ratio(tp + fp, questions),
        "unparsed": ratio(unparsed, questions),
    }


def _name(group: str, figure: str) -> str:
    return f"{group}_{figure}" if group else figure


@dataclass(eq=False, repr=False)
class POPE(AskingBenchmark):
    """POPE's three splits.

    Args:
        data_dir: Folder with ``coco_pope_random.json`` and the other two.
        split: One of the splits, whose ids are the official question numbers; or ``all``, whose ids are
            ``split/number``.
        parser: ``llava``, ``opera``, ``vcd`` or ``lmms-eval``.
        repope: Folder with RePOPE's ``coco_repope_random.json`` and the other two (Neuhaus and Hein, 2025). Its
            corrected labels replace POPE's, and questions that it dropped as ambiguous are not asked.
    """

    name = "pope"
    title = "POPE"
    yes_no = True
    dataset = _dataset(
        *("pope", "coco", "COCO", "coco-val2014", _POPE, "https://github.com/AoiDragon/POPE"),
        "c16b65d2df6d70bb0814c8a4375833d39cdb09928fd936d3fc546491efa37f35",
        "5b16653023bf4f64d57eb0d168259de6627f5cde7538b85ebed3cc33034aa6cc",
        "1d8f0906a9b50c05640f6f23abfac97523be2a1bed28f7eadc63b811699b2d26",
    )
    image_dataset = COCO_VAL2014
    on: ClassVar[str] = "coco"
    """The images that are asked about, as file names begin."""
    metrics = METRICS
    figures = staticmethod(figures)
    max_new_tokens = 10

    _: KW_ONLY
    split: str = "all"
    parser: str = "llava"
    repope: Path | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split not in (*SPLITS, "all"):
            raise InputError(f"POPE has no split {self.split!r}", hint=f"use {', '.join(SPLITS)} or all")
        if self.parser not in PARSERS:
            raise InputError(f"{self.parser!r} is not a POPE parser", hint=f"use {', '.join(PARSERS)}")
        if self.repope is not None:
            if self.on != "coco":
                raise InputError(f"RePOPE corrects labels on COCO only, not {self.title}", hint="-b pope")
            self.repope = Path(self.repope)

    @property
    def questions(self) -> Mapping[Id, PopeQuestion]:
        return self._read[0]

    @cached_property
    def _read(self) -> tuple[dict[Id, PopeQuestion], dict[str, int]]:
        """The questions, and how many RePOPE dropped or relabeled."""
        questions: dict[Id, PopeQuestion] = {}
        fate: Counter[str] = Counter()
        for split in SPLITS if self.split == "all" else (self.split,):
            found = _read_split(self, split)
            if self.repope is not None:
                found = relabel(found, _read_repope(self.repope, split), fate)
            questions |= {
                (f"{split}/{number}" if self.split == "all" else number): one for number, one in found.items()
            }
        if self.repope is not None and not questions:
            raise InputError(
                f"none of the questions in {self.data_dir} is in {self.repope}",
                hint="both must be about COCO's val2014 images",
            )
        return questions, dict(fate)

    def asked(self, identity: Id) -> Question | None:
        """Return the question of an id; response files carry POPE's labels, so corrected ones are not compared."""
        found = super().asked(identity)
        return found if found is None or self.repope is None else Question(found.image, found.text)

    def describe(self, items: Sequence[Item]) -> dict[str, Any]:
        labels = {} if self.repope is None else {"labels": "repope", **self._read[1]}
        unparsed = sum(item.details["answer"] is None for item in items)
        about = {"parser": self.parser, "split": self.split, "records": len(self.questions)}
        return {**about, **labels, "unparsed": unparsed}

    def official(self, items: Sequence[Item]) -> Mapping[str, float | None]:
        """Compute the yes-ratio of the labels, as lmms-eval prints it, and where labels were corrected."""
        if self.parser != "lmms-eval" and self.repope is None:
            return {}
        labeled = sum(item.details["label"] == "yes" for item in items)
        return {"yes_ratio_of_labels": 100 * labeled / len(items) if items else None}

    def score_response(self, response: Response) -> Item:
        question = self.questions[response.id]
        answer = PARSERS[self.parser](response.text, question.label)
        counts = {f"{question.split}.{name}": 1 for name in outcome(question.label, answer)}
        return Item(
            id=response.id,
            image=question.image,
            counts=counts,
            details={
                "split": question.split,
                "label": question.label,
                "answer": answer,
                "correct": answer == question.label,
            },
        )


class POPEonAOKVQA(POPE):
    """POPE's three splits of questions on A-OKVQA, which has COCO's images; the options are those of POPE."""

    name = "pope-aokvqa"
    title = "POPE on A-OKVQA"
    dataset = _dataset(
        *("pope-aokvqa", "aokvqa", "A-OKVQA", "coco-val2014", f"{_VCD}/aokvqa", _VCD_PAGE),
        "900c244605e8d43626b9579a110e3631e534cddc2aff27fe91e3f080e15d4446",
        "792d586a875c197362256b25e9252cc97df6fa1dca5aca72a53eba560414d6b7",
        "87f9acb460fcb690f9120c6d69eb05cfedadab5af5eb385b5201fd48bfc6670c",
    )
    on = "aokvqa"


class POPEonGQA(POPE):
    """POPE's three splits of questions on GQA; the options are those of POPE."""

    name = "pope-gqa"
    title = "POPE on GQA"
    dataset = _dataset(
        *("pope-gqa", "gqa", "GQA", "gqa", f"{_VCD}/gqa", _VCD_PAGE),
        "1c1117ce33df2eae0d7b04827896caff1f79dac7b99b9e1b0c87a415066cff98",
        "e48e138bd61dd3bc4ec35cc8d4357b4dbfc68f0e704283a92217325585a17653",
        "64a3bdeb8d24c02d175eafa5e1b24bc7fd611efa95bb87a031c880e548aef094",
    )
    image_dataset = GQA
    on = "gqa"


def _read_split(pope: POPE, split: str) -> dict[int, PopeQuestion]:
    path = require_file(pope.data_dir, f"{pope.on}_pope_{split}.json", benchmark=pope.name)
    found: dict[int, PopeQuestion] = {}
    for number, question in _questions_of(path, split):
        if number in found:
            raise InputError(f"{path} has the question id {number!r} twice", hint="fetch the file again")
        found[number] = question
    return found


def _questions_of(path: Path, split: str) -> Iterator[tuple[int, PopeQuestion]]:
    """Yield the questions of a file with their numbers."""
    for where, row in read_rows(path, hint="fetch the file again"):
        with parsing(f"{where}, is not a POPE question"):
            identity, label = row["question_id"], row["label"].lower().strip()
            question = PopeQuestion(row["image"], row["text"], label, split)
        if type(identity) is not int:
            raise InputError(f"{where}, has the question id {identity!r}")
        if label not in ("yes", "no"):
            raise InputError(f"{where}, has the label {label!r}; expected yes or no")
        yield identity, question


def _read_repope(folder: Path, split: str) -> dict[tuple[str, str], str]:
    """Read RePOPE's labels of one split by picture and object."""
    name = f"coco_repope_{split}.json"
    if not (found := find_files(folder, name)):
        raise InputError(
            f"{name} is not in {folder}",
            hint="RePOPE's annotations are in the folder annotations of https://github.com/YanNeu/RePOPE",
        )
    labels: dict[tuple[str, str], str] = {}
    for number, one in _questions_of(found[0], split):
        if labels.setdefault(subject(one), one.label) != one.label:
            raise InputError(f"{found[0]}, row {number}, contradicts an earlier label of the same object")
    return labels


def relabel(
    questions: Mapping[int, PopeQuestion], labels: Mapping[tuple[str, str], str], fate: Counter[str]
) -> dict[int, PopeQuestion]:
    """Keep the questions that have a corrected label, with that label, and count the others.

    They are matched by picture and object, because copies of POPE differ in ids and spelling.
    """
    kept = {}
    for number, question in questions.items():
        label = labels.get(subject(question))
        if label is None:
            fate["dropped"] += 1
            continue
        fate["relabelled"] += label != question.label
        kept[number] = replace(question, label=label)
    fate["not_asked"] += len(labels.keys() - {subject(one) for one in kept.values()})
    return kept


def subject(question: PopeQuestion) -> tuple[str, str]:
    """Return the picture and the object of a question; older copies of POPE ask about the "imange"."""
    found = re.fullmatch(
        r"is there an? (.+) in the (?:image|imange)\s*\??", " ".join(question.text.lower().split())
    )
    if found is None:
        raise InputError(f"{question.text!r} does not ask for an object", hint="Is there a dog in the image?")
    return PurePosixPath(question.image).name, found[1]


def outcome(label: str, answer: str | None) -> list[str]:
    """Name the counts that one answer adds to."""
    names = ["questions", "labelled_yes"] if label == "yes" else ["questions"]
    if answer is None:
        return [*names, "unparsed"]
    return [*names, ("t" if answer == label else "f") + ("p" if answer == "yes" else "n")]
