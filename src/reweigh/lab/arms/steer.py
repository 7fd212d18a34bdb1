"""Steering vectors from labeled images: the model describes them, and its mentions are judged.

Labels belong to tokens that the model wrote, and so do the states: each answer is read once more after its prompt.
An answer that names absent objects is also paired with itself, without the sentences that name them. Answers are kept
in a run folder that resumes and can be scored like any other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from reweigh.errors import InputError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.identity import identify
from reweigh.families.processor import tokenizer_of
from reweigh.families.prompts import build_inputs
from reweigh.files.artifacts import sha256_json
from reweigh.files.outputs import claim, write_output
from reweigh.images import read_image
from reweigh.lab.runs.diff import hallucinated_objects
from reweigh.lab.runs.record import find_image
from reweigh.lab.runs.results import read_scored
from reweigh.lab.runs.task import Runs
from reweigh.lab.study import Study, Tokens, decoder_arm
from reweigh.progress import progress
from reweigh.provenance import versions
from reweigh.rivals.tools.states import answer_states, hidden_states
from reweigh.rivals.tools.vectors import LabeledSums, Pairs, SteeringVectors
from reweigh.text import token_ends

ANSWERS, WORDS = "answers", "hallucinated.txt"
COUNT = 10
"""Words in the list of hallucinated objects."""
STEERED = {"asd": "vectors", "vti": "vectors", "nullu": "vectors", "projectaway": "erase"}
"""Decoders that need what is made here, and the option that names it."""


def missing(options: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the methods and variants that need directions or words and were given none.

    Examples:
        >>> missing({"asd": {"lam": 0.1}, "vti": {"vectors": "mine"}, "vcd": {}})
        ['asd']
    """
    needed = {name: STEERED.get(name.partition("@")[0]) for name in options}
    return [name for name, option in needed.items() if option is not None and option not in options[name]]


def fill_in(options: dict[str, dict[str, Any]], out: Path) -> None:
    """Let the methods that were given none use those that ``make`` writes into a folder."""
    for name in missing(options):
        option = STEERED[name.partition("@")[0]]
        options[name][option] = str(out / WORDS if option == "erase" else out)


def make(model: Any, processor: Any, runs: Runs, out: Path) -> None:
    """Make vectors and the list of words in a folder, unless they are there for this model and these records."""
    if SteeringVectors.file(out).is_file() and (out / WORDS).is_file():
        made_with = SteeringVectors.load(out).made_with
        wanted = {
            "identity": identify(find_anatomy(model), processor).to_json(),
            "benchmark": dict(runs.task.metadata),
            "records_sha256": _digest(runs),
        }
        if all(made_with.get(name) == value for name, value in wanted.items()):
            return
    steer(model, processor, runs, out)
    write_words(out)


def steer(model: Any, processor: Any, runs: Runs, out: Path) -> SteeringVectors:
    """Describe a benchmark's images, label the objects that are mentioned, and average the states of both kinds.

    Args:
        runs: A benchmark whose items carry mentions with spans (world, chair), and how it is answered.
        out: Folder for the answers and the vectors; a stopped run resumes there.
    """
    anatomy = find_anatomy(model)
    blocks = range(len(anatomy.blocks))
    arm = decoder_arm(ANSWERS, "base", observers=[Tokens()])
    study = Study([runs], [arm], out / ANSWERS, reference=None, flat=True)
    study.run((model, processor))
    items = {item.id: item for item in study.score(runs, arm).items}
    noted = [ids for note in study.notes(runs, arm) for ids in note["tokens"]]
    tokens = {record.id: ids for record, ids in zip(runs.task.records, noted, strict=True)}
    sums: LabeledSums | None = None
    pairs = Pairs()
    for record in progress(runs.task.records, "reading answers"):
        ids = tokens[record.id]
        mentioned = _mentions(items[record.id].details, runs.task.name)
        ends = token_ends(ids, partial(processor.decode, skip_special_tokens=True))
        labels = token_labels(list(pairwise([0, *ends])), mentioned) if mentioned else []
        if not any(label is not None for label in labels):
            continue
        picture = read_image(find_image(runs.task.images, record.image))
        inputs = build_inputs(model, processor, [picture], [record.prompt], template=runs.template)
        states = answer_states(anatomy, inputs, ids, blocks).numpy()
        sums = sums or LabeledSums(*states.shape[1:])
        sums.add(states, labels)
        if texts := answer_pair(processor.decode(ids, skip_special_tokens=True).strip(), mentioned):
            tokenized = tokenizer_of(processor)(list(texts), add_special_tokens=False)["input_ids"]
            pairs.add(*(hidden_states(anatomy, inputs, row).numpy() for row in tokenized))
    sums = sums or LabeledSums(len(blocks), 0)
    made_with = {
        "identity": identify(anatomy, processor).to_json(),
        "benchmark": dict(runs.task.metadata),
        "records": len(runs.task.records),
        "records_sha256": _digest(runs),
        "answers_sha256": sha256_json([tokens[record.id] for record in runs.task.records]),
        "states": "residual stream after each block, at the tokens of mentions; hidden_states of pairs",
        "dtype": str(model.dtype).removeprefix("torch."),
        "versions": versions(),
    }
    factual, hallucinated = sums.counts.tolist()
    directions = (sums.vectors(), pairs.direction(), pairs.subspace())
    made = SteeringVectors(*directions, factual, hallucinated, len(pairs.last), made_with)
    made.save_pretrained(out)
    return made


def _digest(runs: Runs) -> str:
    return sha256_json([[record.id, record.prompt] for record in runs.task.records])


def claim_files(out: Path) -> None:
    """Refuse a folder with other files under the names that ``steer`` writes."""
    claim([out / WORDS])
    SteeringVectors.claim(out)


def answer_pair(answer: str, mentions: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    """Return an answer without the sentences that mention absent objects, and as it is; ``None`` if either is empty."""
    spans = [(one["start"], one["end"]) for one in mentions if one["hallucinated"]]
    kept = [
        found.group()
        for found in re.finditer(r"[^.!?]+[.!?]*", answer)
        if not any(start < found.end() and end > found.start() for start, end in spans)
    ]
    truthful = "".join(kept).strip()
    return (truthful, answer) if spans and truthful else None


def write_words(out: Path) -> Path:
    """Write the objects that the answers of ``steer`` hallucinate most often, one per line, e.g. for ``projectaway``."""
    found = hallucinated_objects(read_scored(out / ANSWERS).items)[:COUNT]
    return write_output(out / WORDS, "".join(f"{name}\n" for name, _ in found))


def token_labels(
    offsets: Sequence[tuple[int, int]], mentions: Sequence[Mapping[str, Any]]
) -> list[bool | None]:
    """Say for each token whether it belongs to a hallucinated mention; ``None`` if it mentions no object."""
    return [
        next(
            (bool(one["hallucinated"]) for one in mentions if start < one["end"] and end > one["start"]), None
        )
        for start, end in offsets
    ]


def _mentions(details: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    found = details.get("mentions")
    if not isinstance(found, Sequence):
        raise InputError(
            f"{name} does not label mentions, which steering vectors need",
            hint="use -b world or -b chair",
        )
    return found
