"""AMBER, generative half: nouns of a description against the image's true and likely hallucinated objects.

Decides on every noun in the official scorer's order, which reproduces its printed figures. The text is not
lower-cased: a capitalized noun is not in the vocabulary, and only "TV" is a television.
"""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from reweigh.errors import InputError
from reweigh.files.artifacts import sha256_file
from reweigh.lab.bootstrap import Array, ratio, sum_counts
from reweigh.lab.tasks.amber.data import GENERATIVE, Half, Words
from reweigh.lab.tasks.base import Item, MetricInfo, Response
from reweigh.lab.tasks.language import Language, Token, language

SMOOTHING = 0.001  # the official scorer starts every counter of a denominator here

NO_RESPONSE = "there are no responses"
METRICS = (
    MetricInfo(
        "chair",
        "lower",
        title="CHAIR",
        headline=True,
        undefined="no response mentions a word of the vocabulary",
    ),
    MetricInfo("cover", "higher", headline=True, undefined="no image has a true object"),
    MetricInfo("hal", "lower", headline=True, undefined=NO_RESPONSE),
    MetricInfo("cog", "lower", headline=True, undefined="no image has a likely hallucinated object"),
    MetricInfo("length", title="words", unit="", undefined=NO_RESPONSE),
)


def figures(counts: Mapping[str, Array]) -> dict[str, Array]:
    """Compute the unrounded, unsmoothed figures from summed counts; percent, NaN where undefined."""
    return {
        "chair": ratio(counts["hallucinated_mentions"], counts["mentions"]),
        "cover": ratio(counts["covered"], counts["truth"]),
        "hal": ratio(counts["hallucinated_responses"], counts["responses"]),
        "cog": ratio(counts["cognitive"], counts["hallu"]),
        "length": ratio(counts["words"], counts["responses"], scale=1.0),
    }


@dataclass(eq=False, repr=False)
class AMBERGenerative(Half):
    """Object hallucination in free descriptions of AMBER's 1,004 images.

    Args:
        data_dir: Folder with ``annotations.json``, ``relation.json``, ``safe_words.txt`` and the queries.
        similarity: ``auto``, ``spacy``, ``table`` or ``exact``; see :func:`choose_similarity`.
        table: File of near pairs, for ``table`` and ``auto``.
        backend: The language tools, instead of those over the installed data.
    """

    name = "amber-generative"
    title = "AMBER, generative"
    metrics = METRICS
    figures = staticmethod(figures)
    max_new_tokens = 128
    half = GENERATIVE

    _: KW_ONLY
    similarity: str = "auto"
    table: str | Path | None = None
    backend: Language | None = None

    @cached_property
    def words(self) -> Words:
        """The closed vocabulary."""
        return Words.read(self.data_dir)

    @cached_property
    def _language(self) -> Language:
        return self.backend or language()

    @cached_property
    def _similarity(self) -> tuple[Similar, dict[str, Any]]:
        return choose_similarity(self.similarity, self.table)

    def describe(self, items: Sequence[Item]) -> dict[str, Any]:
        about = {"language": self._language.describe(), "similarity": self._similarity[1]}
        return {**about, "records": len(self._rows)}

    def official(self, items: Sequence[Item]) -> Mapping[str, float | None]:
        """Compute what the official scorer prints: smoothed denominators, one decimal; an empty file has Hal 100."""
        total = sum_counts(items)

        def share(count: float, name: str) -> float:
            return count / (SMOOTHING + total.get(name, 0.0)) * 100

        clean = total.get("responses", 0.0) - total.get("hallucinated_responses", 0.0)
        return {
            "CHAIR": round(share(total.get("hallucinated_mentions", 0.0), "mentions"), 1),
            "Cover": round(share(total.get("covered", 0.0), "truth"), 1),
            "Hal": round(100 - share(clean, "responses"), 1),
            "Cog": round(share(total.get("cognitive", 0.0), "hallu"), 1),
        }

    def score_response(self, response: Response) -> Item:
        row = self._rows[int(response.id)]
        nouns = self._nouns(response.text)
        judged = _Judge(self.words, self._similarity[0], row["truth"], row["hallu"])
        outcomes = [judged.judge(word) for word, _ in nouns]
        hallucinated = outcomes.count("hallucinated")
        return Item(
            id=response.id,
            image=f"AMBER_{response.id}.jpg",
            counts={
                "responses": 1,
                "hallucinated_responses": int(hallucinated > 0),
                "mentions": len(nouns),
                "hallucinated_mentions": hallucinated,
                "covered": len(judged.covered),
                "truth": len(row["truth"]),
                "cognitive": len(judged.cognitive),
                "hallu": len(row["hallu"]),
                "words": len(response.text.split()),
            },
            details={
                "mentions": [
                    {
                        "word": word,
                        "start": token.start,
                        "end": token.end,
                        "outcome": outcome,
                        "hallucinated": outcome == "hallucinated",
                    }
                    for (word, token), outcome in zip(nouns, outcomes, strict=True)
                ],
                "missed": [name for index, name in enumerate(row["truth"]) if index not in judged.covered],
            },
        )

    def _nouns(self, text: str) -> list[tuple[str, Token]]:
        """Return the vocabulary words among the nouns of a text, with repeats."""
        tokens = self._language.tokens(text)
        tags = self._language.tags([token.text for token in tokens])
        nouns = [
            (self._language.lemma(token.text, "NN"), token)
            for token, tag in zip(tokens, tags, strict=True)
            if tag.startswith("NN")
        ]
        return [(word, token) for word, token in nouns if word in self.words.vocabulary]


class _Judge:
    """The official decisions on the nouns of one response; collects which objects were reached."""

    def __init__(self, words: Words, similar: Similar, truth: list[str], hallu: list[str]) -> None:
        self._safe = words.safe
        self._similar = similar
        self._truth = words.candidates(truth)
        self._hallu = words.candidates(hallu)
        self.covered: set[int] = set()
        self.cognitive: set[int] = set()

    def judge(self, noun: str) -> str:
        if noun in self._safe:
            return "safe"
        if _mark(self._truth, self.covered, lambda word: word == noun):
            return "grounded"
        # Both steps run: the equal entry and the first near one need not belong to the same object.
        _mark(self._hallu, self.cognitive, lambda word: word == noun)
        _mark(self._hallu, self.cognitive, lambda word: self._similar(noun, word))
        # A word of the hallucination list is forgiven, and still counts for Cog, if it is near a true word.
        if _mark(self._truth, self.covered, lambda word: self._similar(noun, word)):
            return "near"
        return "hallucinated"


def _mark(candidates: list[tuple[str, int]], reached: set[int], fits: Any) -> bool:
    """Mark the object of the first matching candidate; return whether there was one."""
    for word, index in candidates:
        if fits(word):
            reached.add(index)
            return True
    return False


MODEL = "en_core_web_lg"
THRESHOLD = 0.8

Similar = Callable[[str, str], bool]


def choose_similarity(wanted: str, table: str | Path | None) -> tuple[Similar, dict[str, Any]]:
    """Return the similarity and its description.

    ``auto`` takes the table of near pairs if one is given, else spaCy's model if it is installed, else exact words only.
    """
    if wanted not in ("auto", "spacy", "table", "exact"):
        raise InputError(f"unknown similarity {wanted!r}", hint="use auto, spacy, table or exact")
    if wanted == "auto":
        installed = importlib.util.find_spec(MODEL) is not None
        wanted = "table" if table is not None else "spacy" if installed else "exact"
    if wanted == "table":
        if table is None:
            raise InputError("the similarity 'table' needs a file of near pairs")
        pairs = read_pairs(table)
        return (lambda first, second: first == second or frozenset((first, second)) in pairs), {
            "kind": "table",
            "sha256": sha256_file(table),
        }
    if wanted == "spacy":
        return _spacy_similarity()
    return (lambda first, second: first == second), {
        "kind": "exact",
        "note": f"near words were not forgiven, because neither {MODEL} nor a table of pairs is available",
    }


def read_pairs(path: str | Path) -> set[frozenset[str]]:
    """Read near pairs: JSON lists of two words, or lines of two words; a number after them must exceed 0.8."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            rows = json.loads(text)
        else:
            rows = [line.replace(",", " ").split() for line in text.splitlines() if line.strip()]
        return {frozenset(row[:2]) for row in rows if _is_near(row)}
    except OSError as error:
        raise InputError(f"the table of pairs {path} cannot be read ({error})") from error
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise InputError(f"{path} is not a table of word pairs ({error})") from error


def _is_near(row: Any) -> bool:
    if len(row) not in (2, 3) or not all(isinstance(word, str) for word in row[:2]):
        raise ValueError(f"expected two words and optionally a number, got {row!r}")
    return len(row) == 2 or float(row[2]) > THRESHOLD


def _spacy_similarity() -> tuple[Similar, dict[str, Any]]:
    try:
        import spacy
    except ImportError as error:
        raise InputError(
            "the similarity 'spacy' needs spaCy, which is not installed",
            hint=f"pip install spacy && python -m spacy download {MODEL}, or pass near pairs with --option table=FILE",
        ) from error
    try:
        model = spacy.load(MODEL)
    except OSError as error:
        raise InputError(
            f"spaCy's model {MODEL} is not installed",
            hint=f"install it with: python -m spacy download {MODEL}",
        ) from error
    document = cache(model)

    @cache
    def similar(first: str, second: str) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a word without a vector is near nothing
            return bool(document(first).similarity(document(second)) > THRESHOLD)

    return similar, {
        "kind": "spacy",
        "model": MODEL,
        "version": model.meta["version"],
        "spacy": spacy.__version__,
    }
