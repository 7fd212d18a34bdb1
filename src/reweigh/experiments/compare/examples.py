"""Examples on the page of a comparison: what every method wrote about a few pictures, chosen by a stated rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reweigh.benchmarks.base import Id, Item
from reweigh.experiments.compare.table import Comparison
from reweigh.results.examples import thumbnail, titled_response
from reweigh.results.html import Html, card, element, legend, section
from reweigh.runs.results import ScoredRun

GAINED, LOST = 2, 1
"""Pictures on which the chief method has fewer, and more, objects that are not there than the base."""
OPEN = 6
"""Texts that are shown at once; the others are folded away."""


@dataclass(frozen=True)
class TitledRun:
    """The scored run of a method under its title."""

    title: str
    run: ScoredRun
    chief: bool = False

    def absent(self) -> dict[Id, int]:
        """How many different objects that are not there each text names."""
        return {item.id: len(_absent(item)) for item in self.run.items}


def example_sections(made: Comparison) -> list[Html]:
    """A section for each benchmark whose texts name objects."""
    benchmarks = dict.fromkeys(name for row in made.rows for name in row.scored)
    chief = made.chief()
    found = []
    for name in benchmarks:
        runs = [
            TitledRun(row.title, row.scored[name], row is chief) for row in made.rows if name in row.scored
        ]
        if len(runs) > 1 and all("mentions" in item.details for item in runs[0].run.items):
            title = "Examples" if len(benchmarks) == 1 else f"Examples of {name}"
            found.append(_section(title, runs))
    return found


def choose(base: Mapping[Id, int], chief: Mapping[Id, int], all_: Sequence[Mapping[Id, int]]) -> list[Id]:
    """The pictures to show: most gained, most lost, and the one on which the methods differ most; ties by id."""
    gain = {one: base[one] - chief[one] for one in base}
    order = sorted(gain, key=lambda one: (-gain[one], str(one)))
    gained = [one for one in order if gain[one] > 0][:GAINED]
    lost = sorted((one for one in gain if gain[one] < 0), key=lambda one: (gain[one], str(one)))[:LOST]
    spread = {one: max(found[one] for found in all_) - min(found[one] for found in all_) for one in base}
    apart = [one for one in spread if one not in (*gained, *lost)]
    apart.sort(key=lambda one: (-spread[one], str(one)))
    return [*gained, *lost, *apart[:1]]


def _section(title: str, runs: Sequence[TitledRun]) -> Html:
    base, chief = runs[0], next((one for one in runs if one.chief), runs[-1])
    chosen = choose(base.absent(), chief.absent(), [one.absent() for one in runs])
    words = (
        f"The pictures on which {chief.title} names fewest objects that are not there, against the base; then the one "
        "where it names most; then the one on which the methods differ most. Chosen by these numbers, not by taste."
    )
    return section(
        title, element("p", words, class_="muted"), legend(), *(_card(runs, chief, one) for one in chosen)
    )


def _card(runs: Sequence[TitledRun], chief: TitledRun, identity: Id) -> Html:
    base = runs[0]
    order = [base, *([chief] if chief is not base else []), *(one for one in runs[1:] if one is not chief)]
    texts = [_text(one, identity) for one in order]
    body = [element("h3", _heading(base, identity)), element("div", *texts[:OPEN], class_="pair")]
    if more := texts[OPEN:]:
        body.append(
            element(
                "details",
                element("summary", f"{len(more)} more methods"),
                element("div", *more, class_="pair"),
            )
        )
    small = thumbnail(base.run.image_finder()(identity), _item(base, identity))
    return card(small, *body)


def _heading(base: TitledRun, identity: Id) -> str:
    reference = _item(base, identity).details.get("reference")
    there = f": {', '.join(map(str, reference))}" if isinstance(reference, list) else ""
    return f"{identity}{there}"


def _text(one: TitledRun, identity: Id) -> Html:
    item = _item(one, identity)
    absent = sorted(_absent(item))
    note = f"not there: {', '.join(absent)}" if absent else "nothing that is not there"
    text = one.run.texts.get(identity, "")
    return titled_response(one.title, item, text, element("p", note, class_="muted"))


def _item(one: TitledRun, identity: Id) -> Item:
    return next(item for item in one.run.items if item.id == identity)


def _absent(item: Item) -> set[str]:
    """The objects that a text names although they are not there."""
    mentions = item.details.get("mentions", [])
    return {str(one.get("object", one.get("word"))) for one in mentions if one["hallucinated"]}
