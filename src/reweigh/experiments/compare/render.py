"""A comparison in words: tables of figures and of differences to the base, for files and the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reweigh.experiments.compare.table import Comparison
from reweigh.results.table import Column, Table
from reweigh.runs.record import REPORT

if TYPE_CHECKING:
    from rich.console import Group

PAIRED = "Difference to the base, with paired 95% image-bootstrap intervals"


def figures_table(made: Comparison) -> Table:
    """Figures of every row, shaded and ranked."""
    columns = [
        Column(one.name, one.better, one.digits, unit=one.unit, group=one.group, ranked=one.ranked)
        for one in made.figures
    ]
    across = range(len(made.figures))
    rows = [[row.title, *(row.interval(j) or row.values[j] for j in across)] for row in made.rows]
    shades = {(i, j + 1): made.shade_of(i, j) for i in range(len(made.rows)) for j in across}
    links = {
        i: f"{next(iter(row.runs.values()))}/{REPORT}"
        for i, row in enumerate(made.rows)
        if len(row.runs) == 1
    }
    return Table([Column(made.kind), *columns], rows, shades=shades, second=True, links=links)


def differences_table(made: Comparison) -> Table | None:
    """Differences to the base, where there are any."""
    compared = [j for j in range(len(made.figures)) if any(row.difference(j) for row in made.rows[1:])]
    if not compared:
        return None
    columns = [
        Column(one.name, one.better, one.digits, signed=True, group=one.group, ranked=False)
        for one in (made.figures[j] for j in compared)
    ]
    rows = [[row.title, *(row.difference(j) for j in compared)] for row in made.rows[1:]]
    shades = {
        (i, place): made.shade_of(i + 1, j) for i in range(len(rows)) for place, j in enumerate(compared, 1)
    }
    return Table([Column(made.kind), *columns], rows, shades=shades)


def markdown(made: Comparison) -> str:
    """Both tables as GitHub-flavoured Markdown with what a reader must know."""
    parts = [
        f"{made.model}\n",
        figures_table(made).markdown(),
        "\n".join([made.legend(), *made.caption()]) + "\n",
    ]
    if (compared := differences_table(made)) is not None:
        parts += [f"{PAIRED}:\n", compared.markdown()]
    return "\n".join(parts)


def latex(made: Comparison) -> str:
    """Both tables as ``tabular``; needs booktabs, and xcolor with its table option."""
    notes = [f"% {line}" for line in [made.model, *made.caption(), made.legend()]]
    parts = ["\n".join(notes), figures_table(made).latex()]
    if (compared := differences_table(made)) is not None:
        parts += [f"% {PAIRED}.", compared.latex()]
    return "\n".join(parts)


def terminal(made: Comparison) -> Group:
    """Both tables for a rich console, with what a reader must know."""
    from rich.console import Group
    from rich.text import Text

    compared = differences_table(made)
    tables: list[Text | Table] = [] if compared is None else [Text(f"{PAIRED}:"), compared]
    notes = Text("\n".join([made.legend(), *made.caption()]))
    return Group(Text(made.model), figures_table(made), *tables, notes)
