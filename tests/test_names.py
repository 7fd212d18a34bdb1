"""Test files are found by their name alone, so two of one name cannot be collected together."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent


def test_no_two_test_files_have_one_name() -> None:
    names = Counter(path.name for path in HERE.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
