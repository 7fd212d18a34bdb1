"""``reweigh study``: the paper's analyses on your own model and images, all from one pass over the images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from reweigh.cli import common
from reweigh.cli.options import CAPTIONED, ExperimentOptions, grouped

if TYPE_CHECKING:
    from reweigh.lab.paper.study import Outcome

app = typer.Typer(add_completion=False)

ALL = "all"


@dataclass(frozen=True, kw_only=True)
class StudyOptions(ExperimentOptions):
    """Options of an experiment; the batch size defaults to that of the calibration."""

    batch_size: int = typer.Option(
        0, min=0, help="Images to answer at once; 0 means as many as in calibration."
    )


@app.command()
@grouped
def study(
    name: str = typer.Argument(help="A study, several separated by commas, or `all`; `list` names them."),
    *,
    setup: StudyOptions,
    calibration: Path = typer.Option(
        None,
        help="Folder or manifest of the images that the table was calibrated on; drawn for `world`.",
    ),
    benchmark: str = CAPTIONED,
    out: Path = typer.Option(Path("study"), "--out", "-o", help=common.RESUMES),
    paper: bool = typer.Option(
        False,
        "--paper",
        help="Also write OUT/paper: the paper's tables and figures beside what was measured.",
    ),
    results: list[Path] = typer.Option(
        [], exists=True, file_okay=False, help="Finished ablation or comparison for --paper; repeatable."
    ),
    point: common.Point,
) -> None:
    """Compute the paper's analyses: a tidy table, a figure and a few sentences each.

    The images are described once, and every study reads what that pass kept. Stop it at any time: the same command resumes
    and ends with the same bytes.
    """
    from reweigh.lab.paper.analyses import STUDIES

    if name == "list":
        listed = [
            {"study": one, "title": STUDIES[one].title, "place": STUDIES[one].place()} for one in STUDIES
        ]
        lines = ("{study:<14} {title} ({place})".format(**one) for one in listed)
        common.show(listed, lambda: typer.echo("\n".join(lines)))
        return
    names = list(STUDIES) if name == ALL else [part.strip() for part in name.split(",") if part.strip()]
    for one in names:
        STUDIES[one]  # refuse an unknown name before anything is loaded
    from reweigh.files.artifacts import only_one
    from reweigh.files.outputs import claim
    from reweigh.lab.bootstrap import RESAMPLES
    from reweigh.lab.paper.folder import REPORT, claim_study, finished, run_studies, write_report
    from reweigh.lab.paper.pages import INDEX, claim_paper, write_paper
    from reweigh.lab.paper.prepare import prepare

    claim([out / REPORT])
    for one in names:
        claim_study(out / one, STUDIES[one])
    if paper:
        claim_paper(out / "paper")
    task = setup.task(
        benchmark, drawings=out / "pictures" / "evaluation", needs=("chair_s", "chair_i"), why="a study"
    )
    with only_one(out):
        loaded = setup.load(setup.model)
        runs = setup.runs(task, loaded)
        material = prepare(
            loaded,
            runs,
            out,
            table=point.of(setup.model),
            layer=point.layer,
            beta=point.beta,
            calibration=calibration,
            resamples=RESAMPLES,
            world=setup.is_world,
            force=setup.force,
        )
        outcomes = run_studies(names, material, out)
        written = [
            *(out / one for one in names),
            write_report(out, finished(material, out), material.record()),
        ]
        if paper:
            from reweigh.lab.paper.measured import read_results

            write_paper(read_results([out, *results]), out / "paper")
            written.append(out / "paper" / INDEX)
    found = {"material": material.record(), "studies": [one.to_json() for one in outcomes]}
    common.show(found, lambda: _show(outcomes))
    then = (
        f"open {common.quoted(written[-1])}"
        if paper
        else "the same command with --paper, to see the paper's numbers beside yours"
    )
    common.finish(*written, then=then)


def _show(outcomes: list[Outcome]) -> None:
    """Print each study's table and sentences."""
    from reweigh.lab.paper.folder import tidy_table

    for outcome in outcomes:
        typer.echo(f"{outcome.study.title} ({outcome.study.place()})")
        if outcome.frame:
            common.console().print(tidy_table(outcome).terminal())
        for sentence in outcome.sentences:
            typer.echo(f"  {sentence}")
        typer.echo("")
