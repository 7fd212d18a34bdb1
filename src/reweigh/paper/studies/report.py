"""The page of a study folder: contents, then for each study its sentences, figure and table, and at the end the record.

Needs no other file: figures and pictures are embedded. Only what is finished in the folder is shown.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reweigh.files.artifacts import write_text
from reweigh.paper.studies.run import FIGURE, FRAGMENT
from reweigh.paper.studies.study import Outcome, Row
from reweigh.results.html import Html, document, element, join
from reweigh.results.table import MISSING
from reweigh.text import in_words

REPORT = "report.html"
LONG = 30
"""Rows from which on a table is folded away on the screen; it is printed all the same."""


def write_report(folder: Path, outcomes: Sequence[Outcome], record: Mapping[str, Any]) -> Path:
    """Write the page of some studies into their folder."""
    model = record["identity"].get("model_id") or "a model"
    images = record["images"]
    lead = (
        f"{model}, layer {record['layer']}, beta {record['beta']:g}: {images['evaluation']:,} evaluation and "
        f"{images['calibration']:,} calibration images. Brackets are 95% bootstrap intervals over images, "
        f"{record['resamples']:,} draws, seed {record['seed']}."
    )
    body = [contents(outcomes), *(study_section(folder, one) for one in outcomes), record_section(record)]
    text = document("The paper's analyses", *body, lead=lead, footer="Written by reweigh study.")
    write_text(folder / REPORT, text)
    return folder / REPORT


def contents(outcomes: Sequence[Outcome]) -> Html:
    """Links to the sections."""
    items = [
        element("li", element("a", one.study.title, href=f"#{one.study.name}"), " ", _state(one))
        for one in outcomes
    ]
    items.append(element("li", element("a", "Record", href="#record")))
    return element("nav", element("h2", "Contents"), element("ol", *items), class_="contents")


def _state(outcome: Outcome) -> Html:
    words = outcome.study.reproduces if outcome.unmet is None else "not computed"
    return element("span", words, class_="muted")


def study_section(folder: Path, outcome: Outcome) -> Html:
    """One study: sentences, figure, what it draws besides, table."""
    study = outcome.study
    parts = [element("h2", study.title, id=study.name), element("p", study.reproduces, class_="muted")]
    parts += [element("p", sentence) for sentence in outcome.sentences]
    if (drawing := folder / study.name / f"{FIGURE}.svg").is_file() and outcome.unmet is None:
        parts.append(element("figure", embedded_svg(drawing, alt=_described(outcome))))
    if (further := folder / study.name / FRAGMENT).is_file() and outcome.unmet is None:
        parts.append(Html(further.read_text(encoding="utf-8")))
    if outcome.rows:
        parts.append(tidy_table(outcome))
    return element("section", *parts, class_="study")


def _described(outcome: Outcome) -> str:
    """Alternative text of a figure: the study's own sentences."""
    return f"Figure: {outcome.study.title}. {' '.join(outcome.sentences)}".strip()


def embedded_svg(path: Path, *, alt: str) -> Html:
    """A drawing as part of the page."""
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return element("img", src=f"data:image/svg+xml;base64,{data}", alt=alt, class_="drawing")


def tidy_table(outcome: Outcome) -> Html:
    """The study's table; value and interval share a cell, and a long table is folded."""
    columns = [column for column in outcome.study.columns if column.name not in ("low", "high")]
    kinds = {column.name: column.kind for column in columns}
    used = [one for one in columns if any(row[one.name] not in (None, "") for row in outcome.rows)]
    head = [
        element("th", _spaced(one.name), class_=_class(kinds[one.name]), title=one.what, scope="col")
        for one in used
    ]
    body = [
        element(
            "tr",
            *(
                element(
                    "td" if index else "th",
                    *cell(row, one.name),
                    class_=_class(kinds[one.name]),
                    scope=None if index else "row",
                )
                for index, one in enumerate(used)
            ),
        )
        for row in outcome.rows
    ]
    table = element("table", element("thead", element("tr", *head)), element("tbody", *body))
    label = f"Table: {outcome.study.title}"
    shown = element("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)
    summary = element("summary", f"Table, {len(outcome.rows)} rows")
    return element("details", summary, shown, open=len(outcome.rows) <= LONG)


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _class(kind: str) -> str | None:
    return "words" if kind == "text" else None


def cell(row: Row, name: str) -> Iterator[Html]:
    """A value as markup, its interval beside it."""
    yield Html(join([number(row[name])]))
    if name == "value" and row.get("low") is not None and row.get("high") is not None:
        yield element("span", f"[{number(row['low'])}, {number(row['high'])}]", class_="range")


def number(value: Any) -> str:
    """A value as text: four significant digits, whole numbers in full."""
    if value is None:
        return MISSING
    if isinstance(value, str):
        return value
    if isinstance(value, int) or float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:.4g}"


def record_section(record: Mapping[str, Any]) -> Html:
    """What the results depend on; the model's identity, which is long, is folded."""
    short = {name: value for name, value in record.items() if name != "identity"}
    identity = element("details", element("summary", "Identity of the model"), _listed(record["identity"]))
    return element("section", element("h2", "Record", id="record"), _listed(short), identity)


def _listed(record: Mapping[str, Any]) -> Html:
    rows = [
        element(
            "tr",
            element("th", name, class_="words", scope="row"),
            element("td", element("code", text), class_="words"),
        )
        for name, value in flat(record)
        for text in [in_words(value) if isinstance(value, bool) else number(value)]
    ]
    return element("div", element("table", element("tbody", *rows)), class_="scroll")


def flat(record: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values under dotted names; a list as text."""
    for name, value in sorted(record.items()):
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{name}.")
        else:
            known = isinstance(value, int | float | str) or value is None
            yield f"{before}{name}", value if known else in_words(value)
