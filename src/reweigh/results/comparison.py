"""The page of two runs compared: differences with paired intervals, what was removed and introduced, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from reweigh.benchmarks.base import Direction, Id, Item, MetricInfo, find_benchmark
from reweigh.estimate import Estimate
from reweigh.files.outputs import write_output
from reweigh.results.examples import FindImage, thumbnail, titled_response
from reweigh.results.html import Html, card, element, legend, tile, tiles
from reweigh.results.metrics import summary_table
from reweigh.results.page import Page
from reweigh.results.table import Cell, Column, Table
from reweigh.runs.diff import WRONG, Change, Difference, RunPair

EXAMPLES = 12


def write_comparison(path: Path, pair: RunPair, *, images: Path | None = None) -> None:
    """Write the page of two compared runs; ``images`` is where their images may be."""
    items, texts = (pair.first.items, pair.second.items), (pair.first.texts, pair.second.texts)
    find = pair.first.image_finder(images=images)
    write_output(path, comparison_page(pair.difference, items, texts, names=pair.titles, find=find))


def difference_table(difference: Difference, names: tuple[str, str]) -> Table:
    """Headline figures before, after, and their difference with its paired interval."""
    heading = find_benchmark(difference.benchmark).heading()
    columns = [Column("figure"), Column(names[0], digits=2), Column(names[1], digits=2)]
    columns += [Column("difference", digits=2, signed=True), Column("")]
    rows: list[list[Cell]] = []
    for info in _headlines(difference):
        change = difference.figures[info.name]
        before, after = difference.before[info.name].value, difference.after[info.name].value
        rows.append([info.title, before, after, change, verdict(info.direction, change)])
    return Table(
        columns, rows, caption=f"{heading}: {difference.n:,} items; paired image-bootstrap 95% intervals."
    )


def _headlines(difference: Difference) -> list[MetricInfo]:
    return find_benchmark(difference.benchmark).headlines(list(difference.figures))


def verdict(better: Direction | None, change: Estimate) -> str:
    """Whether a difference is beyond chance, and for the better or the worse."""
    if better is None or change.value is None or not change.bounded:
        return ""
    if not change.beyond_chance:
        return "within chance"
    return "better" if (change.value < 0) == (better == "lower") else "worse"


def mention_table(difference: Difference) -> Table | None:
    """Removed, introduced, kept and net occurrences of hallucinated objects."""
    if not difference.mentions:
        return None
    names = ("removed", "introduced", "kept")
    row = [difference.mentions[name] for name in names]
    columns = [*(Column(name, digits=0) for name in names), Column("in all")]
    return Table(
        [Column(what_changed(difference)), *columns], [["occurrences", *row, net_in_words(difference)]]
    )


def net_in_words(difference: Difference) -> str:
    """Removed minus introduced, in words: "15 fewer [9, 21]" or "3 more [-1, 7]" says which run is better."""
    net = difference.mentions["net"]
    value = round(net.value or 0)
    more = value < 0
    words = f"{abs(value)} {'more' if more else 'fewer'}" if value else "as many"
    if net.low is None or net.high is None:
        return words
    low, high = (-net.high, -net.low) if more else (net.low, net.high)
    return f"{words} [{low:.0f}, {high:.0f}]"


def what_changed(difference: Difference) -> str:
    """What removed and introduced count: hallucinated mentions, or wrong answers to yes-no questions."""
    kinds = {
        word for change in difference.changes for word in (*change.removed, *change.introduced, *change.kept)
    }
    return "wrong answers" if kinds == {WRONG} else "hallucinated mentions"


def comparison_page(
    difference: Difference,
    items: tuple[Sequence[Item], Sequence[Item]],
    texts: tuple[Mapping[Id, str], Mapping[Id, str]],
    *,
    names: tuple[str, str],
    find: FindImage = lambda _: None,
) -> str:
    """Build the page of a comparison."""
    runs = [(names[0], difference.before), (names[1], difference.after)]
    title = f"{find_benchmark(difference.benchmark).heading()}: {names[1]} against {names[0]}"
    lead = f"{difference.n:,} responses of each run to the same records."
    made = Page(title, lead=lead, footer="Written by reweigh eval diff.")
    if difference.mentions:
        made.add(_tiles(difference))
    made.section("Figures").table(summary_table(difference.benchmark, runs))
    made.section("Difference").table(difference_table(difference, names))
    drawn = {
        info.title: found
        for info in _headlines(difference)
        if (found := difference.figures[info.name]).bounded
    }
    made.intervals(drawn, f"{names[1]} minus {names[0]}.", zero=True, digits=2)
    if difference.changes:
        made.section("What changed").add(legend(), *_cards(difference.changes, items, texts, names, find))
    return made.html()


def _tiles(difference: Difference) -> Html:
    made = []
    words, _, interval = net_in_words(difference).partition(" [")
    made.append(tile(f"{what_changed(difference)} in all", words, f"[{interval}" if interval else ""))
    for name in ("removed", "introduced", "kept"):
        metric = difference.mentions[name]
        note = "" if metric.low is None else f"[{metric.low:.0f}, {metric.high:.0f}]"
        made.append(tile(f"{name} {what_changed(difference)}", f"{metric.value or 0:.0f}", note))
    return tiles(made)


def _cards(
    changes: Sequence[Change],
    items: tuple[Sequence[Item], Sequence[Item]],
    texts: tuple[Mapping[Id, str], Mapping[Id, str]],
    names: tuple[str, str],
    find: FindImage,
) -> list[Html]:
    """The largest changes for the better, then the largest for the worse."""
    by_id = tuple({item.id: item for item in side} for side in items)
    moved = [change for change in changes if change.removed or change.introduced]
    ranked = sorted(moved, key=lambda change: (-change.net, str(change.id)))
    better = [change for change in ranked if change.net > 0][: EXAMPLES * 2 // 3]
    worse = [change for change in reversed(ranked) if change not in better][: EXAMPLES - len(better)]
    cards = []
    for change in [*better, *worse]:
        sides = [
            titled_response(name, by_id[side][change.id], texts[side].get(change.id, ""))
            for side, name in enumerate(names)
        ]
        both = element("div", *sides, class_="pair")
        small = thumbnail(find(change.id), by_id[0][change.id])
        note = element("p", _summary(change), class_="muted")
        cards.append(card(small, element("h3", f"{change.id}"), both, note))
    return cards


def _summary(change: Change) -> str:
    parts = []
    for name in ("removed", "introduced", "kept"):
        objects: Mapping[str, int] = getattr(change, name)
        if objects:
            listed = ", ".join(
                f"{word} ×{count}" if count > 1 else word for word, count in sorted(objects.items())
            )
            parts.append(f"{name}: {listed}")
    return " · ".join(parts)
