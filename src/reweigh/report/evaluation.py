"""The page of one evaluation: large numbers, intervals, all figures, examples with coloured mentions, the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reweigh.benchmarks.base import Id, Item, Metric
from reweigh.errors import ReweighError
from reweigh.report import coloured
from reweigh.report.coloured import Span
from reweigh.report.html import (
    Html,
    element,
    figure,
    legend,
    page,
    picture,
    section,
    tile,
    tiles,
)
from reweigh.report.plots import interval_plot
from reweigh.report.tables import Cell, Column, Estimate, Table
from reweigh.runs.score import direction, read_metrics

HEADLINES: Mapping[str, tuple[str, ...]] = {
    "chair": ("chair_s", "chair_i", "recall", "f1", "length"),
    "world": ("chair_s", "chair_i", "recall", "f1", "length"),
    "amber-generative": ("chair", "cover", "hal", "cog"),
    "amber-discriminative": ("accuracy", "precision", "recall", "f1", "unparsed"),
    "mmhal": ("score", "hallucination_rate", "unparsed"),
    "mmvet": ("total", "unparsed"),
    "pope": ("accuracy", "precision", "recall", "f1", "yes_ratio"),
}
TITLES = {
    "chair": "CHAIR",
    "world": "CHAIR on the embedded world",
    "amber-generative": "AMBER, generative",
    "amber-discriminative": "AMBER, discriminative",
    "mmhal": "MMHal-Bench",
    "mmvet": "MM-Vet",
    "pope": "POPE",
}
LABELS = {
    "chair_s": "CHAIR_S",
    "chair_i": "CHAIR_I",
    "f1": "F1",
    "chair": "CHAIR",
    "length": "words",
    "chair_i_distinct": "CHAIR_I, distinct objects",
    "set_precision": "precision, distinct objects",
    "set_f1": "F1, distinct objects",
}
NOT_PERCENT = frozenset({"length", "mentions"})
EXAMPLES = 12
FOLD = 12
LONGEST = 6000
Find = Callable[[Id], Path | None]


def label(name: str) -> str:
    """A figure's name as a person writes it."""
    return LABELS.get(name, name.replace("_", " "))


def headlines(benchmark: str, names: Sequence[str]) -> list[str]:
    """The figures that a reader looks for first."""
    wanted = HEADLINES.get(benchmark, tuple(names)[:5])
    return [name for name in wanted if name in names]


def cell(metric: Metric) -> Cell:
    """A figure as a table cell."""
    if metric.value is None:
        return None
    if metric.low is None or metric.high is None:
        return float(metric.value)
    return Estimate(metric.value, metric.low, metric.high)


def summary_table(
    benchmark: str, rows: Sequence[tuple[str, Mapping[str, Metric]]], caption: str = ""
) -> Table:
    """The headline figures of one or several runs, one row for each."""
    names = headlines(benchmark, list(rows[0][1]))
    columns = [Column("run"), *(Column(label(name), direction(name), _digits(name)) for name in names)]
    cells: list[list[Cell]] = [[title, *(cell(metrics[name]) for name in names)] for title, metrics in rows]
    return Table(columns, cells, caption=caption)


def figure_table(benchmark: str, metrics: Mapping[str, Metric], caption: str = "") -> Table:
    """The headline figures of one run, one row for each."""
    rows: list[list[Cell]] = []
    for name in headlines(benchmark, list(metrics)):
        column = Column(label(name), direction(name), _digits(name))
        value, interval = column.show(cell(metrics[name]))
        rows.append([column.heading, value, interval or metrics[name].reason or ""])
    return Table([Column("figure"), Column("value"), Column("95% interval")], rows, caption=caption)


def evaluation_page(
    results: Mapping[str, Any],
    items: Sequence[Item],
    texts: Mapping[Id, str],
    *,
    find: Find = lambda _: None,
    prompts: Mapping[Id, str] | None = None,
) -> str:
    """Build the page of a scored run; ``find`` gives the image file of an item, if it is at hand."""
    summary, config = results["summary"], results["config"]
    benchmark = summary["benchmark"]
    metrics = read_metrics(results)
    parts = [tiles(_tile(name, metrics[name]) for name in headlines(benchmark, list(metrics)))]
    parts += _interval_section(benchmark, metrics)
    parts.append(_example_section(items, texts, find, prompts or {}))
    parts.append(section("All figures", _folded(_all_figures(metrics))))
    if summary["official"]:
        rows: list[list[Cell]] = [
            [name, "undefined" if value is None else f"{value:g}"]
            for name, value in summary["official"].items()
        ]
        table = Table([Column("figure"), Column("printed")], rows)
        parts.append(section("As the official program prints them", _folded(table)))
    parts.append(section("Record", _record({"scorer": summary["scorer"], **config})))
    title = f"{TITLES.get(benchmark, benchmark)}: {run_name(config)}"
    lead = (
        f"{summary['n']:,} responses on {summary['images']:,} images; 95% intervals by drawing images anew."
    )
    if unparsed := summary["scorer"].get("unparsed"):
        lead += f" {unparsed:,} replies could not be read."
    return page(title, *parts, lead=lead, footer="Written by reweigh eval score.")


def _folded(table: Table) -> Html:
    """A table that is long is folded away until it is wanted."""
    if len(table.rows) <= FOLD:
        return table.html()
    return element("details", element("summary", f"{len(table.rows)} figures"), table.html())


def run_name(config: Mapping[str, Any]) -> str:
    """Model and decoder of a run in a few words."""
    sources = config.get("sources") or ["responses"]
    model = str(config.get("model", {}).get("id") or sources[0]).rstrip("/").rsplit("/", 1)[-1]
    decoder = config.get("decoding", {}).get("decoder")
    return f"{model}, {decoder}" if decoder else model


def _tile(name: str, metric: Metric) -> Html:
    unit = "" if name in NOT_PERCENT or name == "score" else " %"
    if metric.value is None:
        return tile(label(name), "–", metric.reason or "")
    digits = _digits(name)
    note = (
        ""
        if metric.low is None or metric.high is None
        else f"[{metric.low:.{digits}f}, {metric.high:.{digits}f}]"
    )
    return tile(label(name), f"{metric.value:.{digits}f}{unit}", note)


def _digits(name: str) -> int:
    return 2 if name == "score" or name.startswith("score_") else 1


def _interval_section(benchmark: str, metrics: Mapping[str, Metric]) -> list[Html]:
    names = [
        name for name in headlines(benchmark, list(metrics)) if name not in NOT_PERCENT and name != "score"
    ]
    rows = [(label(name), found) for name in names if isinstance(found := cell(metrics[name]), Estimate)]
    if not rows:
        return []
    return [section("Intervals", figure(interval_plot(rows), "Percent, with 95% image-bootstrap intervals."))]


def _all_figures(metrics: Mapping[str, Metric]) -> Table:
    rows: list[list[Cell]] = []
    for name, metric in metrics.items():
        better = direction(name)
        shown: Cell = cell(metric)
        if isinstance(shown, float):
            shown = Column(name, digits=_digits(name)).number(shown)
        rows.append([label(name), shown, metric.reason or (f"{better} is better" if better else "")])
    return Table([Column("figure"), Column("value", digits=2), Column("note")], rows)


def said(item: Item, text: str) -> Html:
    """A response with its mentions in colour; the end of a very long one is left out."""
    shown = text if len(text) <= LONGEST else text[:LONGEST]
    rest = f" … ({len(text) - len(shown):,} more characters)" if len(shown) < len(text) else ""
    return element("p", coloured.html(shown, mention_spans(item, shown)), rest, class_="said")


def mention_spans(item: Item, text: str) -> list[Span]:
    """The mentions of an item as coloured spans; those outside the text are left out."""
    spans = []
    for mention in item.details.get("mentions", []):
        start, end = mention.get("start"), mention.get("end")
        if isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= len(text):
            kind: coloured.Kind = "hallucinated" if mention["hallucinated"] else "grounded"
            spans.append(Span(start, end, kind, str(mention.get("object", mention.get("word", "")))))
    return spans


def thumbnail(path: Path | None) -> Html | None:
    """A small embedded picture; None where there is none to read."""
    from reweigh.images import read_image

    if path is None:
        return None
    try:
        return picture(read_image(path), alt=path.name, max_side=320, kind="JPEG")
    except ReweighError:
        return None


def _example_section(
    items: Sequence[Item], texts: Mapping[Id, str], find: Find, prompts: Mapping[Id, str]
) -> Html:
    chosen = _choose(items)
    if not chosen:
        return section("Examples", element("p", "There are no responses.", class_="muted"))
    # A prompt that is the same for all is no news in each example.
    asked = prompts if len(set(prompts.values())) > 1 else {}
    cards = [
        _card(item, texts.get(item.id, str(item.details.get("response", ""))), find, asked.get(item.id))
        for item in chosen
    ]
    intro = legend() if any("mentions" in item.details for item in chosen) else Html("")
    note = element("p", "The worst first, then some without any fault.", class_="muted")
    return section("Examples", intro, note, *cards)


def fault(item: Item) -> float:
    """How much is wrong with a response: hallucinated mentions, or 1 for a wrong or badly judged answer."""
    details = item.details
    if "mentions" in details:
        return float(sum(bool(mention["hallucinated"]) for mention in details["mentions"]))
    if "correct" in details:
        return float(not details["correct"])
    score = details.get("score")
    return -float(score) if score is not None and details.get("parsed", True) else 1.0


def _choose(items: Sequence[Item]) -> list[Item]:
    """Two thirds of the examples are the worst items, one third the best; the order does not depend on chance."""
    ranked = sorted(items, key=lambda item: (-fault(item), str(item.id)))
    worst = ranked[: EXAMPLES * 2 // 3]
    best = [item for item in reversed(ranked) if item not in worst][: EXAMPLES - len(worst)]
    return [*worst, *best]


def _card(item: Item, text: str, find: Find, prompt: str | None) -> Html:
    small = thumbnail(find(item.id))
    body = [element("h3", f"{item.id}")]
    details = item.details
    if question := details.get("question", prompt):
        body.append(element("p", element("b", "Question: "), str(question)))
    body.append(said(item, text))
    body += [element("p", line, class_="muted") for line in _notes(details)]
    if reply := details.get("reply") or details.get("replies"):
        body.append(element("details", element("summary", "judge"), element("p", str(reply), class_="said")))
    kind = "card example" if small is not None else "card example plain"
    return element("div", *([small] if small is not None else []), element("div", *body), class_=kind)


def _notes(details: Mapping[str, Any]) -> list[str]:
    notes = []
    if missed := details.get("missed"):
        notes.append("not mentioned: " + ", ".join(map(str, missed)))
    if "correct" in details:
        truth = details.get("truth", details.get("label"))
        notes.append(f"truth {truth}, read as {details.get('answer') or 'neither'}")
    if "score" in details:
        notes.append(
            f"score {details['score']}" + ("" if details.get("parsed", True) else " (reply not readable)")
        )
    if isinstance(details.get("reference"), str):
        notes.append(f"reference: {details['reference']}")
    return notes


def _record(value: Mapping[str, Any]) -> Html:
    rows = [
        element("tr", element("td", name), element("td", element("code", text), class_="words"))
        for name, text in _flat(value)
    ]
    table = element("div", element("table", element("tbody", *rows)), class_="scroll")
    return element("details", element("summary", "everything the figures depend on"), table)


def _flat(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        return [
            row
            for key, inner in value.items()
            for row in _flat(inner, f"{prefix}.{key}" if prefix else str(key))
        ]
    return [(prefix, str(value))] if value not in (None, {}, []) else []
