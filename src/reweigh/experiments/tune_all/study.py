"""The same budget for every method of a comparison: a small grid over its own options, judged by the rule of ``tune``.

A decoder's class names its grid; every grid has :data:`BUDGET` settings. All settings answer the same tuning records,
and the rule that chooses ReWEIGH's operating point chooses among them. The comparison then has a second, tuned row for
each method, on records that no choice was made on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from reweigh.errors import InputError
from reweigh.estimate import Estimate
from reweigh.experiments.compare.methods import BASE, TUNED, Method, decoder_of, make_method, titled
from reweigh.experiments.experiment import Experiment, decoder_arm, write_frame
from reweigh.experiments.tune.search import BOUND, RULE, gain, is_eligible, require_figures
from reweigh.experiments.tune.study import quality
from reweigh.results.frame import Frame
from reweigh.runs.task import Runs, Scored

BUDGET = 6
"""Settings that each method may try."""
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Tried:
    """One setting of a method on the tuning records."""

    setting: Options
    metrics: Mapping[str, Estimate]
    gain: float | None
    eligible: bool


@dataclass(frozen=True)
class Tuning:
    """What every method's settings gave on the tuning records.

    Attributes:
        base: Figures of the base model.
        tried: The settings of each method, in the order of its grid.
        titles: The methods' names as papers write them.
        about: Records, rule and bound.
    """

    base: Mapping[str, Estimate]
    tried: Mapping[str, Sequence[Tried]]
    titles: Mapping[str, str]
    about: Mapping[str, Any]

    def chosen(self, name: str) -> Tried | None:
        """The eligible setting of highest gain, if it gains; of equal ones the first of the grid."""
        better = [one for one in self.tried[name] if one.eligible and one.gain is not None and one.gain > 0]
        return max(better, key=lambda one: one.gain or 0.0, default=None)

    def methods(self, loaded: tuple[Any, Any], options: Mapping[str, Options]) -> list[Method]:
        """The methods of the comparison with their own options, each followed by its tuned row."""
        found = []
        for name, given in options.items():
            found.append(make_method(name, *loaded, given))
            if name in self.tried:
                found.append(self._tuned(name, loaded, given))
        return found

    def _tuned(self, name: str, loaded: tuple[Any, Any], given: Options) -> Method:
        row, chosen = tuned_name(name), self.chosen(name)
        if chosen is not None:
            return make_method(row, *loaded, {**given, **chosen.setting})
        why = f"none of its {BUDGET} settings improves on the base on the tuning records"
        return Method(row, titled(self.titles[name], TUNED), reason=why)

    def frame(self, found: Frame) -> Frame:
        """All figures on the tuning records, with what was chosen."""
        chosen = {name: one and dict(one.setting) for name in self.tried for one in [self.chosen(name)]}
        return Frame(found.rows, {**found.about, **self.about, "chosen": chosen})


def tune_all(
    loaded: tuple[Any, Any],
    options: Mapping[str, Options],
    runs: Runs,
    out: Path,
    *,
    bound: float = BOUND,
) -> Tuning:
    """Answer the tuning records with every setting of every method into folders below ``out``, and judge them.

    A method without a grid, or that the model cannot serve, is not tuned.
    """
    arms = [decoder_arm(BASE, *loaded, BASE, {}, template=runs.template)]
    settings: dict[str, list[Options]] = {}
    titles: dict[str, str] = {}
    for name, given in options.items():
        if tuned_name(name) in options:
            raise InputError(
                f"{tuned_name(name)} is what the tuned row of {name} is called", hint="rename it"
            )
        method = make_method(name, *loaded, given)
        if not (own := settings_of(name)) or method.reason is not None:
            continue
        settings[name], titles[name] = own, method.title
        for setting in own:
            merged = {**given, **setting}
            arms.append(
                decoder_arm(
                    arm_name(name, setting), *loaded, decoder_of(name), merged, template=runs.template
                )
            )
    experiment = Experiment(runs, arms, out, what="tuning")
    found = experiment.run(BASE)
    base = experiment.scored[BASE]
    require_figures(quality(base))
    tried = {
        name: [judged(setting, experiment.scored[arm_name(name, setting)], base, bound) for setting in own]
        for name, own in settings.items()
    }
    about = {
        "benchmark": runs.task.metadata,
        "records": len(runs.task.records),
        "seed": runs.seed,
        "budget": BUDGET,
        "bound": bound,
        "rule": RULE,
        "reference": BASE,
    }
    tuning = Tuning(base.summary.metrics, tried, titles, about)
    write_frame(tuning.frame(found), out)
    return tuning


def settings_of(name: str) -> list[Options]:
    """All combinations of a method's grid."""
    from reweigh.rivals import DECODERS

    grid = DECODERS[decoder_of(name)].grid
    if not grid:
        return []
    names = [option for option, _ in grid]
    return [dict(zip(names, values, strict=True)) for values in product(*(some for _, some in grid))]


def judged(setting: Options, run: Scored, base: Scored, bound: float) -> Tried:
    """Hold a setting against the base, as a search of an operating point does."""
    own, reference = quality(run), quality(base)
    return Tried(setting, run.summary.metrics, gain(own, reference), is_eligible(own, reference, bound))


def arm_name(name: str, setting: Options) -> str:
    """The folder of a setting."""
    return "-".join([name, *(f"{option}-{value}" for option, value in setting.items())])


def tuned_name(name: str) -> str:
    """The name of a method's tuned row, a variant of it."""
    return f"{name}-{TUNED}" if "@" in name else f"{name}@{TUNED}"
