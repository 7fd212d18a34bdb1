"""``reweigh reproduce``: the paper's protocol on a model of yours, in one command that resumes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from reweigh.cli import common
from reweigh.cli.options import grouped
from reweigh.errors import InputError, ReweighError

if TYPE_CHECKING:
    from reweigh.lab.paper.reproduce import Pace, Protocol, Step

app = typer.Typer(add_completion=False)

MINUTE = 60.0
"""Seconds to measure for the estimate of a plan."""
DONE = "reproduce.json"
"""The finished steps, with their commands."""


@app.command()
@grouped
def reproduce(
    model: str = common.MODEL,
    *,
    coco: Path = typer.Option(
        None,
        help="Folder with train2014, val2014 and annotations of MS COCO; by default that of `reweigh data`.",
    ),
    amber: Path = typer.Option(None, help="Folder of AMBER; by default that of `reweigh data`."),
    judge: bool = typer.Option(False, "--judge", help="Also answer MMHal-Bench and MM-Vet, and ask a judge."),
    judge_option: list[str] = typer.Option(
        [], metavar="NAME=VALUE", help="Option of the judge, as in `reweigh eval score`; repeatable."
    ),
    out: Path = typer.Option(..., "--out", "-o", help="Output folder; a stopped run resumes there."),
    plan: bool = typer.Option(
        False,
        "--plan",
        help="Only print the commands, what is missing, and an estimate of the hours.",
    ),
    limit: int = typer.Option(None, min=1, help="Fewer images for each part, for a trial."),
    max_new_tokens: int = typer.Option(None, min=1, help="Shorter answers, for a trial."),
    loading: common.Loading,
) -> None:
    """Run the paper's whole protocol on a model, and set the results beside the published numbers.

    Every step is a command of its own, printed before it runs. Stop it at any time: the same command resumes.
    """
    from reweigh.files.artifacts import only_one
    from reweigh.files.outputs import claim
    from reweigh.lab.paper.reproduce import Protocol, left_out, plan_table
    from reweigh.lab.tasks.coco import COCO_TRAIN2014
    from reweigh.lab.tasks.data import folder_of

    rated = [part for one in judge_option for part in ("--judge-option", one)] if judge else None
    options = [part for one in loading.model_option for part in ("--model-option", one)]
    protocol = Protocol(
        model, coco or folder_of(COCO_TRAIN2014), out, amber, rated, limit, max_new_tokens, options
    )
    steps = protocol.steps()
    if plan:
        pace = None if protocol.missing() else _pace(protocol, loading)
        _show_plan(plan_table(steps, pace), left_out(steps), steps, pace)
        return
    if (lacks := protocol.missing()) is not None:
        raise InputError(f"{lacks} is missing", hint="reweigh reproduce ... --plan lists all that is needed")
    out.mkdir(parents=True, exist_ok=True)
    claim([out / DONE, protocol.manifest])
    with only_one(out):
        protocol.draw()
        for line in left_out(steps):
            typer.echo(line, err=True)
        for number in range(len(steps)):
            step = protocol.steps()[number]  # anew: the last step names the folders that are there by then
            _run(step, out / DONE)
    page = out / "study" / "paper" / "index.html"
    common.finish(
        page, then="publish the page's folder with your model and machine; docs/studies.md says where"
    )


def _run(step: Step, path: Path) -> None:
    """Run one step, unless it is finished, and note that it is."""
    from reweigh.files.seals import read_sealed, write_sealed

    done = read_sealed(path)["done"] if path.is_file() else {}
    if step.missing is not None:
        return
    if done.get(step.name) == list(step.command):
        return
    typer.echo(f"\n{step.name}: reweigh {' '.join(step.command)}", err=True)
    code = subprocess.run([sys.executable, "-m", "reweigh", *step.command], check=False).returncode
    if code == 130:
        raise KeyboardInterrupt
    if code:
        raise ReweighError(
            f"the step {step.name} ended with exit code {code}; its message is above",
            hint="the same command resumes at this step",
        )
    write_sealed(path, {"done": {**done, step.name: list(step.command)}})


def _pace(protocol: Protocol, loading: common.Loading) -> Pace:
    """Describe pictures for a minute with the model itself."""
    from reweigh.lab.paper.reproduce import first_record, measure_pace
    from reweigh.rivals import decoder

    record, pictures = first_record(protocol), protocol.draw()
    session = decoder("base", *loading.load(protocol.model))
    return measure_pace(
        session,
        pictures,
        prompt=record.prompt,
        tokens=protocol.tokens or record.max_new_tokens,
        seconds=MINUTE,
    )


def _show_plan(table: object, missing: list[str], steps: list[Step], pace: Pace | None) -> None:
    if common.wants_json():
        rows = [
            {
                "step": one.name,
                "command": ["reweigh", *one.command],
                "hours": None if pace is None or one.missing else pace.hours(one),
                "missing": one.missing,
            }
            for one in steps
        ]
        common.emit_json({"steps": rows, "seconds_per_description": pace and pace.description})
        return
    common.console().print(table)
    for line in missing:
        typer.echo(line)
    if pace is None:
        typer.echo("No estimate: images are missing.")
        return
    total = sum(pace.hours(one) for one in steps if one.missing is None)
    typer.echo(
        f"About {total:.1f} hours here: a greedy description took {pace.description:.1f} s, one word {pace.word:.2f} s; the "
        "rivals are estimated from their published latency, and the analyses are a rough guess."
    )
