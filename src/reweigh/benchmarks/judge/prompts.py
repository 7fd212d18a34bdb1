"""Judge prompts read from the benchmarks' own files; none is shipped.

The official programs keep the prompt as a string in their source. It is taken from there by parsing, never by
running; a plain text file is taken whole.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

from reweigh.errors import InputError


def find_prompt(data: str | Path, names: Sequence[str], given: str | Path | None, benchmark: str) -> Path:
    """The file given, or the first of the benchmark's files that is there."""
    if given is not None:
        return Path(given)
    for name in names:
        if (path := Path(data, name)).is_file():
            return path
    raise InputError(
        f"{data} contains none of {', '.join(names)}, so there is no judge prompt",
        hint=f"reweigh data {benchmark}, or give the file with --judge-option prompt=FILE",
    )


def read_prompt(path: str | Path, names: tuple[str, ...]) -> str:
    """Read a prompt from a text file, or from the string assigned to one of ``names`` in a Python file."""
    path = Path(path)
    text = _text(path)
    if path.suffix != ".py":
        return text
    for node in ast.walk(_tree(path, text)):
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id in names for t in node.targets
        ):
            value = node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value
    raise InputError(
        f"{path} assigns no text to {' or '.join(names)}",
        hint="give the benchmark's own program, or its prompt as a .txt file",
    )


def strings_of(path: str | Path) -> Iterator[str]:
    """All string constants of a Python file; none of another file."""
    path = Path(path)
    if path.suffix == ".py":
        for node in ast.walk(_tree(path, _text(path))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def _text(path: Path) -> str:
    try:
        # Newlines must come as they are: the prompt's bytes decide the verdict.
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise InputError(f"the prompt file {path} does not exist") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text ({error})") from error


def _tree(path: Path, text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise InputError(f"{path} is not Python source ({error})") from error
