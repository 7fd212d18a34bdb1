"""Find the objects that a caption mentions, by the exact steps of the published CHAIR scorers.

Lower-case, tokenize, lemmatize, merge pairs, drop the seat of a toilet, look up. Two variants differ only in
the lemmatizer: ``wordnet`` (OPERA and most papers) and ``pattern`` (the original). Mentions carry their span in the
caption as written. Quirks of the published scorers are kept; tests/lab/tasks/test_chair_mentions.py names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from reweigh.errors import InputError
from reweigh.files.artifacts import sha256_text
from reweigh.lab.tasks.language import Language, Token, load_singularize

Variant = Literal["wordnet", "pattern"]

_KEPT_PAIRS = (
    *("motor bike", "motor cycle", "air plane", "traffic light", "street light", "traffic signal"),
    *("stop light", "fire hydrant", "stop sign", "parking meter", "suit case", "sports ball"),
    *("baseball bat", "baseball glove", "tennis racket", "wine glass", "hot dog", "cell phone"),
    *("mobile phone", "teddy bear", "hair drier", "potted plant", "laptop computer"),
    # Not in the vocabulary: they only absorb "plate" and "train".
    *("home plate", "train track"),
)
_YOUNG_OR_GROWN = (
    *("bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe"),
    *("animal", "cub"),  # not in the vocabulary: the pair vanishes, and with it the person "baby" or "adult"
)
PAIRS: Mapping[str, str] = {
    **{pair: pair for pair in _KEPT_PAIRS},
    **{f"{age} {animal}": animal for animal in _YOUNG_OR_GROWN for age in ("baby", "adult")},
    "passenger jet": "jet",
    "passenger train": "train",
    "bow tie": "tie",
    "toilet seat": "toilet",
    "wine glas": "wine glass",  # what pattern makes of "wine glass"
}
"""The word that replaces two neighboring lemmas."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A word (or pair) that names a category, and its span in the caption."""

    word: str
    category: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Reading:
    """How the scorer reads a caption.

    Args:
        words: All lemmas after merging pairs, punctuation included; the scorers' ``Len`` counts these.
        mentions: The objects in order, with repeats.
    """

    words: tuple[str, ...]
    mentions: tuple[Mention, ...]


class MentionFinder:
    """Reads captions in one variant; the language gives tokens and, for ``wordnet``, tags and base forms."""

    def __init__(self, vocabulary: Vocabulary, variant: Variant, language: Language) -> None:
        self.vocabulary = vocabulary
        self.variant = variant
        self._language = language
        self._lemmatize: Callable[[Sequence[str]], list[str]]
        if variant == "wordnet":
            self._lemmatize = self._wordnet_lemmas
            self._description = language.describe()
        elif variant == "pattern":
            singularize, package = load_singularize()
            self._lemmatize = lambda words: [singularize(word) for word in words]
            self._description = {"backend": "pattern", "pattern": package, **language.describe_tokens()}
        else:
            raise InputError(f"{variant!r} is not a CHAIR variant", hint="use wordnet or pattern")

    def describe(self) -> dict[str, str]:
        """Name the linguistic back end, for the record of a result."""
        return dict(self._description)

    def read(self, caption: str) -> Reading:
        """Find the objects that a caption mentions."""
        tokens = self._language.tokens(caption, lower=True)
        merged = list(_merge_pairs(self._lemmatize([token.text for token in tokens]), tokens))
        # Where a toilet is mentioned anywhere, no "seat" of the caption is a chair.
        toilet = any(word == "toilet" for word, _, _ in merged)
        category_of = self.vocabulary.category_of
        mentions = (
            Mention(word, category_of[word], start, end)
            for word, start, end in merged
            if word in category_of and not (toilet and word == "seat")
        )
        return Reading(tuple(word for word, _, _ in merged), tuple(mentions))

    def _wordnet_lemmas(self, words: Sequence[str]) -> list[str]:
        tags = self._language.tags(words)
        return [self._language.lemma(word, tag) for word, tag in zip(words, tags, strict=True)]


def _merge_pairs(lemmas: Sequence[str], tokens: Sequence[Token]) -> Iterator[tuple[str, int, int]]:
    """Join pairs greedily from the left; yield each word with its span."""
    index = 0
    while index < len(lemmas):
        pair = PAIRS.get(" ".join(lemmas[index : index + 2]))
        last = index if pair is None else index + 1
        yield pair or lemmas[index], tokens[index].start, tokens[last].end
        index = last + 1


@dataclass(frozen=True)
class Vocabulary:
    """Category names in the table's order, the category of every word, and a hash of the table."""

    categories: tuple[str, ...]
    category_of: dict[str, str]
    sha256: str

    @classmethod
    def read(cls, path: str | Path) -> Vocabulary:
        """Read a table with one category per row: its name, then its other words, separated by ", "."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the synonym table {path} cannot be read ({error})") from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, where: str = "the synonym table") -> Vocabulary:
        """Parse the text of a table."""
        rows = [line.strip().split(", ") for line in text.splitlines() if line.strip()]
        if not rows:
            raise InputError(f"{where} has no rows; expected one row for each category")
        category_of: dict[str, str] = {}
        for row in rows:
            for word in row:
                if category_of.setdefault(word, row[0]) != row[0]:
                    raise InputError(
                        f"{where} lists {word!r} under both {category_of[word]!r} and {row[0]!r}"
                    )
        return cls(tuple(row[0] for row in rows), category_of, sha256_text(text))
