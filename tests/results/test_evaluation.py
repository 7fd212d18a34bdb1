"""The record on the page of an evaluation."""

from __future__ import annotations

from reweigh.results.evaluation import _record


def test_lists_dictionaries_and_flags_are_words() -> None:
    page = _record(
        {"versions": {"torch": "2.13"}, "seen": [1, {"left": True}], "forced": False, "gone": None}
    )
    rows = {"versions.torch": "2.13", "seen": "1, left yes", "forced": "no"}
    for name, words in rows.items():
        assert f'<th scope="row">{name}</th><td class="words"><code>{words}</code></td>' in page
    assert "gone" not in page
