"""``reweigh reproduce``: the paper's protocol on a model of yours, in one command that resumes."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
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
STUDY = "study"
"""The step that makes the pages, after all others."""
DONE = "reproduce.json"
"""The finished steps, with their commands."""


@app.command()
@grouped
def reproduce(
    model: str = common.MODEL,
    *,
    coco: Path = typer.Option(
        None,
        help="Folder with train2014, val2014 and annotations of MS COCO, and AMBER; by default that of `reweigh data`.",
    ),
    judge_option: list[str] = typer.Option(
        [],
        metavar="NAME=VALUE",
        help="Also answer MMHal-Bench and MM-Vet, and ask this judge, e.g. model=gpt-4.1-mini-2025-04-14; repeatable.",
    ),
    only: str = typer.Option(
        None, "--steps", help="Only these steps, separated by commas; -NAME leaves one out (-tune,-mmvet)."
    ),
    out: Path = typer.Option(..., "--out", "-o", help="Output folder; a stopped run resumes there."),
    plan: bool = typer.Option(
        False,
        "--plan",
        help="Only print the commands, what is missing, an estimate of the hours, and what fills each table.",
    ),
    limit: int = typer.Option(None, min=1, help="Fewer images for each part, for a trial."),
    max_new_tokens: int = typer.Option(None, min=1, help="Shorter answers, for a trial."),
    loading: common.Loading,
) -> None:
    """Run the paper's whole protocol on a model, and set the results beside the published numbers.

    Every step is a command of its own, printed before it runs. Stop it at any time: the same command resumes. A step or
    method that fails is reported at the end and tried again by the same command; all others are run.
    """
    from reweigh.files.artifacts import only_one
    from reweigh.files.outputs import claim
    from reweigh.lab.paper.reproduce import Protocol, chosen_steps, left_out
    from reweigh.lab.tasks.coco import COCO_TRAIN2014
    from reweigh.lab.tasks.data import folder_of

    rated = [part for one in judge_option for part in ("--judge-option", one)] or None
    options = [part for one in loading.model_option for part in ("--model-option", one)]
    protocol = Protocol(model, coco or folder_of(COCO_TRAIN2014), out, rated, limit, max_new_tokens, options)
    steps = protocol.steps()
    if plan:
        pace = None if protocol.missing() else _pace(protocol, loading)
        _show_plan(protocol, steps, pace)
        return
    wanted = chosen_steps(steps, only)
    if (lacks := protocol.missing()) is not None:
        raise InputError(f"{lacks} is missing", hint="reweigh reproduce ... --plan lists all that is needed")
    out.mkdir(parents=True, exist_ok=True)
    claim([out / DONE, protocol.manifest])
    with only_one(out):
        protocol.draw()
        for line in [*left_out(steps), *protocol.warnings()]:
            typer.echo(line, err=True)
        failed: dict[str, str] = {}
        changed = False
        for number in range(len(steps)):
            step = protocol.steps()[number]  # anew: the last step names the folders that are there by then
            if step.name not in wanted or step.missing is not None:
                continue
            again = step.name == STUDY and changed  # the pages follow whatever was run
            if _is_done(step, out / DONE) and not again:
                continue
            changed = True
            why = "it needs the table" if "calibrate" in failed else _run(step, out / DONE)
            if why is not None:
                failed[step.name] = why
    if failed:
        raise ReweighError(
            "not everything could be measured: "
            + "; ".join(f"{name}: {why}" for name, why in failed.items()),
            hint="the messages are above; the same command tries these again, everything else is measured",
        )
    page = out / "study" / "paper" / "index.html"
    common.finish(
        page, then="publish the page's folder with your model and machine; docs/studies.md says where"
    )


def _done(path: Path) -> dict[str, list[str]]:
    """Return the finished steps, with their commands."""
    from reweigh.files.seals import read_sealed

    return dict(read_sealed(path)["done"]) if path.is_file() else {}


def _is_done(step: Step, path: Path) -> bool:
    """Whether a step was finished by the same command."""
    return _done(path).get(step.name) == list(step.command)


def _run(step: Step, path: Path) -> str | None:
    """Run one step and note that it is finished; return why it failed, if it did."""
    from reweigh.files.seals import write_sealed

    why = _ended(step.name, step.command)
    if why is not None and "-m" in step.command:
        return _one_by_one(step)
    if why is None:
        write_sealed(path, {"done": {**_done(path), step.name: list(step.command)}})
    return why


def _one_by_one(step: Step) -> str:
    """Compare each method alone with the base, then all that ended together; return which failed, and why."""
    from reweigh.lab.paper.reproduce import METHODS, with_methods

    base, *others = METHODS
    failed = {
        method: why
        for method in others
        if (why := _ended(f"{step.name}, {method}", with_methods(step.command, [base, method]))) is not None
    }
    rest = [method for method in others if method not in failed]
    whole = _ended(f"{step.name}, what is left", with_methods(step.command, [base, *rest])) if rest else None
    return ", ".join([f"{method} {why}" for method, why in failed.items()] + ([whole] if whole else []))


def _ended(name: str, command: Sequence[str]) -> str | None:
    """Run a command; return how it failed, if it did."""
    typer.echo(f"\n{name}: reweigh {shlex.join(command)}", err=True)
    code = subprocess.run([sys.executable, "-m", "reweigh", *command], check=False).returncode
    if code in (130, -signal.SIGINT):
        raise KeyboardInterrupt
    if code < 0:
        return f"was killed by signal {-code}, often for want of memory"
    return f"ended with exit code {code}" if code else None


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


def _show_plan(protocol: Protocol, steps: list[Step], pace: Pace | None) -> None:
    from reweigh.lab.paper.reproduce import coverage, left_out, plan_table

    tables, warnings = coverage(), protocol.warnings()
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
        filled = [dict(zip(("label", "title", "by"), row, strict=True)) for row in tables.rows]
        found = {"steps": rows, "tables": filled, "warnings": warnings}
        common.emit_json({**found, "seconds_per_description": pace and pace.description})
        return
    common.console().print(plan_table(steps, pace))
    common.console().print(tables)
    for line in [*left_out(steps), *warnings]:
        typer.echo(line)
    if pace is None:
        typer.echo("No estimate: images are missing.")
        return
    total = sum(pace.hours(one) for one in steps if one.missing is None)
    typer.echo(
        f"About {total:.1f} hours here: a greedy description took {pace.description:.1f} s, one word {pace.word:.2f} s; the "
        "rivals are estimated from their published latency, and the analyses are a rough guess."
    )
