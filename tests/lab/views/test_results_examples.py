"""Text with colored mentions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.errors import InputError
from reweigh.lab.runs.results import Scored
from reweigh.lab.tasks.types import Item, Summary
from reweigh.lab.views.examples import Span, add_examples, colored_html, colored_text, pieces
from reweigh.lab.views.page import Page

TEXT = "A man & two dogs."


def test_html_colors_and_escapes() -> None:
    spans = [Span(12, 16, "hallucinated", 'a "dog"'), Span(2, 5, "grounded")]
    assert colored_html(TEXT, spans) == (
        'A <span class="grounded">man</span> &amp; two '
        '<span class="hallucinated" title="a &#34;dog&#34;">dogs</span>.'
    )


def test_terminal_keeps_the_text_and_styles_the_mentions() -> None:
    shown = colored_text(TEXT, [Span(2, 5, "grounded"), Span(12, 16, "hallucinated")])
    assert shown.plain == TEXT
    assert [(span.start, span.end, span.style) for span in shown.spans] == [
        (2, 5, "blue"),
        (12, 16, "bold red reverse"),
    ]


def test_a_span_outside_the_text_is_refused() -> None:
    with pytest.raises(InputError, match="3:30"):
        colored_html(TEXT, [Span(3, 30, "grounded")])


@given(st.text(max_size=40), st.data())
def test_pieces_put_together_are_the_text(text: str, data: st.DataObject) -> None:
    place = st.integers(0, len(text))
    spans = [
        Span(min(a, b), max(a, b), "grounded")
        for a, b in data.draw(st.lists(st.tuples(place, place), max_size=6))
    ]
    runs = list(pieces(text, spans))
    assert "".join(run for run, _ in runs) == text
    covered = {i for span in spans for i in range(span.start, span.end)}
    done = 0
    for run, span in runs:
        assert run
        assert {i in covered for i in range(done, done + len(run))} == {span is not None}
        done += len(run)


@pytest.mark.parametrize("count", [3, 20])
def test_a_run_whose_every_answer_is_wrong_shows_none_without_fault(count: int) -> None:
    items = [Item(id=number, image=number, counts={}, details={"correct": False}) for number in range(count)]
    page = Page("A run")
    add_examples(page, Scored(items, Summary.of(items, benchmark="pope", metrics={})), lambda _: None)
    assert "fault" not in page.html()
    assert ("of the best" in page.html()) == (count > 8)
