"""The role of a token by its piece alone: a fixed taxonomy, no tagger, no context.

In this order: *special* (control tokens, bytes that are no text, pieces inside a word), *punctuation* (no letter and no
digit: marks, blanks, line ends), *structural* (a word of the closed list below), else *lexical*.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

Role = Literal["structural", "lexical", "punctuation", "special"]
ROLES: tuple[Role, ...] = ("structural", "lexical", "punctuation", "special")
STARTS = ("▁", "Ġ", " ")
"""Marks with which tokenizers begin a word's first piece."""
INSIDE = "##"
"""Mark with which others begin every further piece."""

WORDS = {
    "articles, determiners, quantifiers": """a an the this that these those some any each every either neither no all both
        half several many much few more most less least another other such what which whose one""",
    "pronouns": """i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she
        her hers herself it its itself they them their theirs themselves who whom whoever something someone anything
        anyone nothing none everything everyone there here""",
    "prepositions and particles": """about above across after against along alongside amid among amongst around as at atop
        before behind below beneath beside besides between beyond by down during except for from in inside into like near
        nearby of off on onto opposite out outside over past per through throughout to toward towards under underneath
        until up upon via with within without away together""",
    "conjunctions": """and but or nor so yet if then than because although though while whereas whether since unless when
        where wherever how why""",
    "auxiliaries and copulas": """am is are was were be been being do does did done doing have has had having can could may
        might must shall should will would""",
    "negation and degree": "not also too very just only even still",
}
FUNCTION_WORDS = frozenset(word for words in WORDS.values() for word in words.split())
"""The closed list of function words."""


def role_of(text: str, *, starts_word: bool, special: bool = False) -> Role:
    """The role of a piece whose text, without marks, is ``text``."""
    bare = text.strip()
    if special or "\ufffd" in bare:
        return "special"
    if not any(letter.isalnum() for letter in bare):
        return "punctuation"
    if not starts_word:
        return "special"
    return "structural" if bare.lower() in FUNCTION_WORDS else "lexical"


def token_roles(tokenizer: Any, vocab_size: int) -> list[Role]:
    """The role of every token of a head; rows beyond the tokenizer are control tokens."""
    known = min(len(tokenizer), vocab_size)
    pieces = [piece or "" for piece in tokenizer.convert_ids_to_tokens(list(range(known)))]
    marked = any(piece.startswith(STARTS) for piece in pieces)
    inside = any(piece.startswith(INSIDE) for piece in pieces)
    control = control_tokens(tokenizer)
    found: list[Role] = []
    for token, piece in enumerate(pieces):
        starts = piece.startswith(STARTS) if marked else not (inside and piece.startswith(INSIDE))
        text = "" if token in control else tokenizer.decode([token])
        found.append(role_of(text.removeprefix(INSIDE), starts_word=starts, special=token in control))
    return found + ["special"] * (vocab_size - known)


def control_tokens(tokenizer: Any) -> Collection[int]:
    """Ids of special tokens and of added tokens that are marked special."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return {*tokenizer.all_special_ids, *(int(token) for token, how in added.items() if how.special)}
