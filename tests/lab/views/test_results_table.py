from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from reweigh.errors import InputError
from reweigh.lab.estimate import Estimate
from reweigh.lab.views.table import Column, Table

COLUMNS = [
    Column("Decoder"),
    Column("CHAIR_S", "lower"),
    Column("F1", "higher", 2),
    Column("Removed", signed=True),
    Column("Length"),
]
ROWS = [
    ["base | plain", Estimate(50.44, 46, 54.8), 80.1, 12, None],
    ["reweigh_1 & co", Estimate(44.8, 40.2, 49.2), 80.85, -3, float("nan")],
    ["twin", Estimate(44.83, 40.2, 49.2), 80.1, 1234, 90.0],
]


def table() -> Table:
    return Table(COLUMNS, ROWS, caption="On 500 images.")


def test_markdown_marks_the_best_as_printed() -> None:
    lines = table().markdown().splitlines()
    assert lines[0] == "| Decoder | CHAIR_S ↓ | F1 ↑ | Removed | Length |"
    assert lines[1] == "| --- | ---: | ---: | ---: | ---: |"
    assert lines[2] == "| base \\| plain | 50.4 [46.0, 54.8] | 80.10 | +12 | – |"
    assert lines[3] == "| reweigh_1 & co | **44.8** [40.2, 49.2] | **80.85** | -3 | – |"
    assert lines[4].startswith("| twin | **44.8** [40.2, 49.2]"), "a tie as printed is shared"
    assert lines[4] == "| twin | **44.8** [40.2, 49.2] | 80.10 | +1,234 | 90.0 |"
    assert lines[-1] == "On 500 images."


def test_latex_escapes_and_has_one_line_per_row() -> None:
    text = table().latex()
    assert "reweigh\\_1 \\& co & \\textbf{44.8} {\\scriptsize [40.2, 49.2]} & \\textbf{80.85}" in text
    assert "CHAIR$_S$ $\\downarrow$" in text
    assert text.count(r"\\") == len(ROWS) + 1
    assert "\\begin{tabular}{lrrrr}" in text


def test_html_has_the_same_best_cells() -> None:
    text = table().html()
    assert text.count('class="best"') == 3
    assert "reweigh_1 &amp; co" in text
    assert '<span class="range">[46.0, 54.8]</span>' in text


def test_terminal_shows_every_cell() -> None:
    out = StringIO()
    Console(file=out, width=120).print(table().terminal())
    for word in ("base | plain", "50.4 [46.0, 54.8]", "80.85", "+1,234", "On 500 images."):
        assert word in out.getvalue()


def test_square_brackets_are_text_not_rich_markup() -> None:
    out = StringIO()
    Console(file=out, width=80).print(Table([Column("[bold]a")], [["[red]x"]]).terminal())
    assert "[bold]a" in out.getvalue()
    assert "[red]x" in out.getvalue()


def test_one_row_has_no_best() -> None:
    assert "**" not in Table(COLUMNS, ROWS[:1]).markdown()


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(InputError, match="cells"):
        Table(COLUMNS, [ROWS[0], ["alone"]])


def test_a_narrow_terminal_breaks_names_and_hides_nothing_of_them():
    table = Table([Column("model"), Column("blocks"), Column("source")], [["LLaVA-1.5-7B", 32, "tuned"]])
    console = Console(width=24, file=StringIO())
    console.print(table.terminal())
    said = console.file.getvalue()
    assert "…" not in said
    assert "7B" in said


def test_long_names_of_rows_keep_some_width():
    rows = [["believes the base's inventions, 50%", 1.0]]
    assert 'class="named"' in Table([Column("verifier"), Column("gain")], rows).html()
    assert 'class="named"' not in Table([Column("verifier"), Column("gain")], [["labels", 1.0]]).html()


def test_a_difference_has_signs_and_is_never_the_best():
    rows = [
        ["base", Estimate(50, 40, 60)],
        ["edited", Estimate(30, 20, 40)],
        ["difference", Estimate(-20, -30, 1)],
    ]
    shown = Table([Column("decoding"), Column("CHAIR_S", "lower")], rows, changes={2})
    assert "| difference | -20.0 [-30.0, +1.0] |" in shown.markdown()
    assert "| edited | **30.0** [20.0, 40.0] |" in shown.markdown()
    assert '<th scope="col">CHAIR_S ↓</th>' in shown.html()  # a column of numbers, not of words


def test_many_intervals_stand_below_their_values():
    for count, stacked in ((4, False), (5, True)):
        columns = [Column("run"), *(Column(str(number)) for number in range(count))]
        assert ("stacked" in Table(columns, [["base", *[Estimate(1, 0, 2)] * count]]).html()) is stacked


COMPARED = Table(
    [
        Column("method"),
        Column("CHAIR_I", "lower", group="CHAIR"),
        Column("F1", "higher", group="CHAIR"),
        Column("Lat.", "lower", 2, unit="×", group="Cost", ranked=False),
    ],
    [["base", 17.0, 80.0, 1.0], ["ReWEIGH", 9.0, 82.0, 1.1], ["VCD", 12.0, 81.0, 2.0]],
    shades={(1, 1): "better-strong", (2, 3): "worse"},
    second=True,
    links={1: "chair/reweigh/report.html"},
)


def test_shades_ranks_groups_and_links_on_every_face() -> None:
    markdown = COMPARED.markdown()
    assert "| ReWEIGH | **9.0** ▲▲ | **82.0** | 1.10× |" in markdown
    assert "| VCD | <u>12.0</u> | <u>81.0</u> | 2.00× ▼ |" in markdown
    latex = COMPARED.latex()
    assert r"\multicolumn{2}{c}{CHAIR} & \multicolumn{1}{c}{Cost}" in latex
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-4}" in latex
    assert r"\cellcolor{blue!25}\textbf{9.0}" in latex
    page = COMPARED.html()
    assert '<th colspan="2" class="group" scope="colgroup">CHAIR</th>' in page
    assert '<td class="better-strong best">9.0 ▲▲</td>' in page
    assert '<a href="chair/reweigh/report.html">ReWEIGH</a>' in page
    assert "<u>12.0</u>" in page


def test_a_narrow_terminal_gets_the_columns_in_parts_with_the_names_in_each() -> None:
    console = Console(width=30, file=StringIO())
    console.print(COMPARED)
    said = console.file.getvalue()
    assert said.count("ReWEIGH") == 2
    for word in ("CHAIR_I", "F1", "Lat.", "9.0 ▲▲", "1.10×"):
        assert word in said


def test_an_estimate_without_interval_or_value_is_shown_as_it_is() -> None:
    shown = Table(
        [Column("figure"), Column("value")], [["a", Estimate(1.0)], ["b", Estimate(None, reason="none")]]
    )
    assert "| a | 1.0 |" in shown.markdown()
    assert "| b | – |" in shown.markdown()


def test_no_zero_has_a_sign_of_its_own():
    assert Column("x", digits=2).show(Estimate(-1e-9, -1e-9, 1.0)) == ("0.00", "[0.00, 1.00]")
    assert Column("x", digits=1, signed=True).number(-1e-9) == "+0.0"
    assert Estimate(-1e-9, -1.0, 0.0).text(1, signed=True) == "+0.0 [-1.0, +0.0]"
