"""How words are marked wherever an answer is shown: in the terminal, in reports and on the server's page.

Two kinds of statement never look the same. *grounded* and *hallucinated* say what is true, and are used only where the
picture's contents are known. *lacks support*, *not judged* and *suppressed* are the method's judgment, which can be wrong.
``marks.css`` draws the same marks in a browser; its classes are the keys of ``MARKS``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

Kind = Literal["grounded", "hallucinated", "unsupported", "unjudged", "suppressed", "changed"]
STYLE = Path(__file__).parent / "serve" / "static" / "css" / "marks.css"
"""The marks in a browser, light and dark; the server's page loads the same file."""


class Mark(NamedTuple):
    """A mark: its name in a legend, what it says of a word, and how rich draws it."""

    title: str
    meaning: str
    terminal: str


MARKS: dict[Kind, Mark] = {
    "grounded": Mark("grounded", "is in the picture", "blue"),
    "hallucinated": Mark("hallucinated", "is not in the picture", "bold red reverse"),
    "unsupported": Mark("lacks support", "the picture shows much less of it than usual", "underline magenta"),
    "unjudged": Mark("not judged", "what is usual for the word is unknown", "dim"),
    "suppressed": Mark("suppressed", "had the highest score, and ReWEIGH lowered it", "strike magenta"),
    "changed": Mark("changed", "the other answer does not have this word here", "yellow"),
}
