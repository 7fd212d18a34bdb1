"""The role of a token by its piece alone: a fixed taxonomy, no tagger, no context.

In this order: *special* (control tokens, bytes that are not text), *punctuation* (no letter and no digit: marks, blanks,
line ends), *special* again for pieces inside a word, *structural* (a word of the closed list below), else *lexical*.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import Literal

Role = Literal["structural", "lexical", "punctuation", "special"]
ROLES: tuple[Role, ...] = ("structural", "lexical", "punctuation", "special")
STARTS = ("▁", "Ġ", " ")
"""How tokenizers mark a word's first piece."""
INSIDE = "##"
"""How others mark every further piece."""

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


def piece_roles(pieces: Sequence[str | None], special: Collection[int]) -> list[Role]:
    """The role of every token by its piece; ``None`` is a row of the head that no piece belongs to."""
    marked = any(piece.startswith(STARTS) for piece in pieces if piece is not None)
    found: list[Role] = []
    for token, (piece, text) in enumerate(zip(pieces, piece_texts(pieces), strict=True)):
        if piece is None:
            found.append("special")
            continue
        starts = piece.startswith(STARTS) if marked else not piece.startswith(INSIDE)
        found.append(role_of(text, starts_word=starts, special=token in special))
    return found


def piece_texts(pieces: Sequence[str | None]) -> list[str]:
    """What every piece says, without marks; empty for a row that no piece belongs to."""
    by_bytes = any(piece.startswith("Ġ") for piece in pieces if piece is not None)
    return [piece_text(piece or "", by_bytes=by_bytes) for piece in pieces]


def piece_text(piece: str, *, by_bytes: bool) -> str:
    """What a piece says, without marks; bytes that are not text become U+FFFD."""
    if by_bytes:
        letters = _byte_letters()
        if all(letter in letters for letter in piece):
            return bytes(letters[letter] for letter in piece).decode("utf-8", errors="replace")
    if piece.startswith("<0x") and piece.endswith(">") and len(piece) == 6:
        return bytes([int(piece[3:5], 16)]).decode("utf-8", errors="replace")
    return piece.replace("▁", " ").removeprefix(INSIDE)


@cache
def _byte_letters() -> dict[str, int]:
    """How byte-level tokenizers write bytes: printable ones as they are, the others from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}
