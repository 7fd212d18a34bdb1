"""Every message that docs/troubleshooting.md quotes is one that the package can give."""

from __future__ import annotations

import ast
import re

import pytest
from blocks import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^\| `(.+?)` \|", PAGE, flags=re.MULTILINE)


def said(node: ast.expr) -> str | None:
    """The text of a literal, with ``...`` for what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        template = said(node.func.value)
        return None if template is None else re.sub(r"{.*?}", "...", template)
    return None


@pytest.fixture(scope="module")
def raised() -> set[str]:
    """First arguments of every call in a module that speaks of errors."""
    texts = set()
    for path in (ROOT / "src").rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if "Error(" in source:
            calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and node.args]
            texts |= {text for node in calls if (text := said(node.args[0]))}
    return texts


def matches(quoted: str, text: str) -> bool:
    """Whether a message can read as quoted: dots of the page stand for anything."""
    return re.fullmatch(".*".join(map(re.escape, quoted.split("..."))), text) is not None


@pytest.mark.parametrize("quoted", MESSAGES)
def test_a_quoted_message_exists(quoted: str, raised: set[str]) -> None:
    assert any(matches(quoted, text) for text in raised)


def test_there_are_messages_and_a_wrong_one_is_found(raised: set[str]) -> None:
    assert len(MESSAGES) > 15
    assert not any(matches("this table was baked with ...", text) for text in raised)
