"""Fenced code blocks of a Markdown page, with what stands above them in a comment."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES += sorted((ROOT / "docs").glob("*.md"))
MARK = re.compile(r"<!-- (not run|full): (.+) -->")
FENCE = re.compile(r"^```(\w*)$")


@dataclass(frozen=True)
class Block:
    """One block.

    Attributes:
        language: What stands behind the fence.
        mark: ``not run`` or ``full`` (too long for every run), if the comment above it says so.
        reason: Why.
    """

    page: Path
    line: int
    language: str
    code: str
    mark: str | None = None
    reason: str | None = None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def read_blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, in order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        if fence is None:
            number += 1
            continue
        end = lines.index("```", number + 1)
        above = next((line for line in reversed(lines[:number]) if line.strip()), "")
        mark = MARK.fullmatch(above.strip())
        code = "\n".join(lines[number + 1 : end]) + "\n"
        yield Block(page, number + 1, fence[1], code, *(mark.groups() if mark else ()))
        number = end + 1


def commands(code: str) -> Iterator[list[str]]:
    """The commands of a shell block as words; comments left out, ``&&`` and line ends separate."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words:
            end = words.index("&&") if "&&" in words else len(words)
            yield words[:end]
            words = words[end + 1 :]
