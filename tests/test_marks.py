"""One language of marks: what is true and what the method judges never look the same."""

from __future__ import annotations

import re

from reweigh.marks import MARKS, STYLE


def test_every_mark_has_its_own_look() -> None:
    css = STYLE.read_text()
    rules = {kind: "".join(re.findall(rf"\.{kind} {{([^}}]*)}}", css)).strip() for kind in MARKS}
    assert all(rules.values())
    assert len(set(rules.values())) == len({mark.terminal for mark in MARKS.values()}) == len(MARKS)


def test_only_truth_is_filled_and_only_judgment_is_drawn_with_lines() -> None:
    css = STYLE.read_text()
    for kind in ("grounded", "hallucinated"):
        [rule] = re.findall(rf"^\.{kind} {{([^}}]*)}}", css, re.MULTILINE)
        assert "background" in rule
        assert "text-decoration" not in rule
    for kind in ("unsupported", "unjudged", "suppressed"):
        [rule] = re.findall(rf"^\.{kind} {{([^}}]*)}}", css, re.MULTILINE)
        assert "text-decoration" in rule
        assert "background" not in rule
        assert "--bad" not in rule
