"""``reweigh describe``: describe images, show why a word was suppressed, mark words without support."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from reweigh.cli import common
from reweigh.cli.options import DECODER, DECODER_OPTION, REWEIGH, decoder_options, grouped
from reweigh.errors import InputError
from reweigh.files.outputs import claim

if TYPE_CHECKING:
    from reweigh.method.check import Checked

app = typer.Typer(add_completion=False)

MARKS = ".,;:!?()\"'“”"
"""Punctuation that is stripped from the words printed."""
CHECK = "Check words"
"""Panel in the help."""
TOP = 8
"""Candidates of a step to show; --json has them all."""


@dataclass(frozen=True, kw_only=True)
class Why:
    """Which decoding step to explain, and how; a group of options."""

    PANEL: ClassVar[str] = "Explain a step"

    why: bool = typer.Option(
        False, "--why", help="Explain a step: every candidate's logit, evidence and edit."
    )
    step: int | None = typer.Option(
        None, help="Step to explain, from 0; by default the first that changed the word."
    )
    plot: Path | None = typer.Option(None, help="Also write the step as an SVG.")

    def __post_init__(self) -> None:
        if not self.why and (self.step is not None or self.plot is not None):
            raise InputError("--step and --plot need --why", hint="add --why")
        if self.plot is not None:
            common.require_ending("--plot", self.plot, ".svg")


@app.command()
@grouped
def describe(
    model: str = common.MODEL,
    images: list[Path] = typer.Argument(help="One or more pictures."),
    *,
    point: common.Point,
    decoder: str = DECODER,
    decoder_option: list[str] = DECODER_OPTION,
    question: common.Question,
    compare: bool = typer.Option(
        False, "--compare", help="Also show the unedited description, with the changed words marked."
    ),
    why: Why,
    check: bool = typer.Option(
        False, "--check", help="Mark the words that lack evidence in the image.", rich_help_panel=CHECK
    ),
    text: str | None = typer.Option(
        None, help="Check this text instead of describing the image.", rich_help_panel=CHECK
    ),
    temperature: float | None = typer.Option(
        None, min=0.0, help="Sample at this temperature; 0 is greedy.", rich_help_panel=common.ADVANCED
    ),
    seed: int = typer.Option(42, help="Seed for sampling.", rich_help_panel=common.ADVANCED),
    loading: common.Loading,
    force: bool = common.FORCE,
) -> None:
    """Describe images with fewer hallucinated objects."""
    if len(images) > 1 and (why.why or text is not None):
        raise InputError(f"--why and --text take one picture, not {len(images)}")
    if decoder != REWEIGH and (why.why or check or text is not None):
        raise InputError("--why, --check and --text are for ReWEIGH", hint=f"leave out --decoder {decoder}")
    from reweigh import rivals

    common.require_pictures(model, images)
    if why.plot is not None:
        claim([why.plot])
    options = decoder_options(decoder, decoder_option, model, point, force=force)
    session: Any = rivals.decoder(decoder, *loading.load(model), **options)
    if decoder == REWEIGH and point.beta is None:
        common.note(str(session.point))
    asked = {**asdict(question), "template": loading.template, "seed": seed}
    asked |= {**session.decoder.decoding(), **_sampling(temperature)}
    pages: list[dict[str, Any]] = []
    for image in images:
        if len(images) > 1 and not common.wants_json():
            typer.echo(f"{image}:")
        page: dict[str, Any] = {"image": str(image)}
        if decoder == REWEIGH:
            page |= {"layer": session.layer, "beta": session.beta}
        if text is None:
            page |= _describe(session, decoder, image, asked, compare, why)
        if check or text is not None:
            page["check"] = _check(session, image, page[REWEIGH] if text is None else text, asked)
        pages.append(page)
    if common.wants_json():
        common.emit_json(pages[0] if len(pages) == 1 else pages)


def _sampling(temperature: float | None) -> dict[str, Any]:
    """Return the arguments of ``Session.describe`` for a temperature, if one is given."""
    if temperature is None:
        return {}
    if temperature == 0:
        return {"do_sample": False}
    return {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}


def _describe(
    session: Any, decoder: str, image: Path, options: dict[str, Any], compare: bool, why: Why
) -> dict[str, Any]:
    """Describe one image and print it; return what JSON shows of it."""
    from reweigh.rivals import decoder as attach

    traced = {"trace": True} if why.why else {}
    with session.using(**traced) as run:
        edited = session.describe(image, **options)
    page: dict[str, Any] = {decoder: edited}
    if compare:
        page["base"] = attach("base", session.model, session.processor).describe(image, **options)
    if not common.wants_json() and compare:
        _side_by_side(page["base"], edited, session.decoder.title or decoder)
    elif not common.wants_json():
        typer.echo(edited)
    if why.why:
        page["why"] = _explain(session, run.trace, image, options, why)
    return page


def _explain(session: Any, trace: Any, image: Path, options: dict[str, Any], why: Why) -> dict[str, Any]:
    from reweigh.cli.why import choose_step, plot_step, print_step
    from reweigh.images import read_image
    from reweigh.lab.arms.steps import whole_candidates

    changed = [found.index for found in trace.steps() if found.changed]
    step = trace.step(choose_step(why.step, changed, len(trace)))
    if not common.wants_json() or why.plot is not None:
        inputs = session.prepare([read_image(image)], [options["prompt"]], template=options["template"])
        words = whole_candidates(session, trace, step, inputs, TOP)
        if why.plot is not None:
            plot_step(step, why.plot, TOP, words)
        if not common.wants_json():
            where = ", ".join(map(str, changed)) or "none"
            typer.echo(f"\n{len(trace)} steps; the edit changed the winner at {where}")
            print_step(trace, step, TOP, words)
    return {"changed_steps": changed, **trace.to_json()}


def _check(session: Any, image: Path, text: str, options: dict[str, Any]) -> dict[str, Any]:
    """Compare a text with the image and print it with unsupported words marked; return what JSON shows of it."""
    from reweigh.measuring import check as run

    found = run(
        session.model,
        session.processor,
        image,
        text,
        table=session.decoder.table,
        prompt=options["prompt"],
        template=options["template"],
        force=True,  # the table was checked when the session was attached
    )
    if not common.wants_json():
        _print_checked(found)
    page: dict[str, Any] = found.to_json()
    return page


def _print_checked(found: Checked) -> None:
    from reweigh.lab.views.examples import Span, colored_text
    from reweigh.method.check import THRESHOLD

    unsupported, unknown = found.unsupported(), found.not_judged()
    spans = [Span(one.start, one.end, "unsupported") for one in unsupported]
    spans += [Span(one.start, one.end, "unjudged") for one in unknown]
    common.console().print(colored_text(found.text, spans))
    for one in unsupported:
        typer.echo(f"  {_bare(one.text)}: lacks support, {one.ratio:.0%} of its usual evidence")
    if not unsupported:
        typer.echo(f"  no word that was judged has less than {THRESHOLD:.0%} of its usual evidence")
    if unknown:
        names = dict.fromkeys(_bare(one.text) for one in unknown)
        typer.echo(f"  not judged, without a reference in the table: {', '.join(names)}")


def _bare(word: str) -> str:
    return word.strip(MARKS) or word


def _side_by_side(base: str, edited: str, title: str) -> None:
    from rich.table import Table

    from reweigh.lab.views.examples import changed_words, colored_text

    removed, added = changed_words(base, edited)
    columns = Table(show_lines=False, expand=True)
    columns.add_column(f"base ({len(base.split())} words)", ratio=1)
    columns.add_column(f"{title} ({len(edited.split())} words)", ratio=1)
    columns.add_row(colored_text(base, removed), colored_text(edited, added))
    common.console().print(columns)
    if not removed and not added:
        typer.echo("no word changed")
