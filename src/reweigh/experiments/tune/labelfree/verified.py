"""Whether a verifier can be believed: what its answers to known absents, common objects and the base's mentions tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from reweigh.experiments.tune.labelfree.figures import Mentions
from reweigh.experiments.tune.search import BASE, Key

LEAST_DENIED = 30
LEAST_J = 0.5
MOST_F = 0.4
LEAST_D0 = 8.0
ALWAYS = (
    "a model that believes its own inventions makes the choice too timid, and no check here can see that; "
    "another model as verifier (--verifier) can"
)


@dataclass(frozen=True, slots=True)
class Trust:
    """What the answers say about the verifier itself.

    Attributes:
        h: Share of yes to objects that every point names.
        f: Share of yes to known absents.
        d0: The base's CHAIR_I by the verifier, in percent.
        denied: Mentions of the base that the verifier denies.
        asked: How many questions were put to it.
    """

    h: float | None
    f: float | None
    d0: float | None
    denied: int
    asked: int = 0

    @property
    def j(self) -> float | None:
        """J = h - f: how far the verifier tells present from absent."""
        return None if self.h is None or self.f is None else self.h - self.f

    def refusal(self) -> str | None:
        """Why no point may be chosen by these answers, if so."""
        if self.j is None:
            return "no object is named by every point, or no known absent could be asked for"
        if self.j < LEAST_J:
            return f"the verifier hardly tells present from absent objects (J {self.j:.2f}, at least {LEAST_J:g})"
        if self.denied < LEAST_DENIED:
            return (
                f"it denies only {self.denied} mentions of the base (at least {LEAST_DENIED} are needed): "
                "take more pictures, or the model invents too little to choose by"
            )
        return None

    def noticed(self) -> list[str]:
        """What is suspicious in these answers."""
        said = []
        if self.f is not None and self.f > MOST_F:
            said.append(f"the verifier affirms {self.f:.0%} of known absents: it leans to yes")
        if self.d0 is not None and self.d0 < LEAST_D0:
            said.append(
                f"the verifier denies only {self.d0:.1f}% of the base's mentions: the model invents little, "
                "or the verifier believes its inventions"
            )
        return said

    def warnings(self) -> list[str]:
        """What a reader must know before using the choice."""
        return [*self.noticed(), ALWAYS]

    def in_words(self) -> str:
        """How far the verifier can be believed, for a person."""
        lines = [
            f"verifier: {self.asked:,} questions; it affirms {_percent(self.h)} of what every point names (h) and "
            f"{_percent(self.f)} of known absents (f), so J = h - f is {'-' if self.j is None else f'{self.j:.2f}'}; "
            f"it denies {self.denied} mentions of the base",
            *(f"note: {warning}" for warning in self.warnings()),
        ]
        if (why := self.refusal()) is not None:
            lines.append(f"refused: {why}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The verifier's part of the result."""
        told = {"refused": self.refusal(), "warnings": self.warnings()}
        return {**asdict(self), "j": self.j, **told}


@dataclass(frozen=True)
class Verified:
    """What was said and what a verifier said to it.

    Attributes:
        points: The mentions of every point, and of the base.
        absents: Known absents of each image.
        gaps: For each image, how strongly each object asked about is affirmed; above 0 is yes.
        who: Who answered.
    """

    points: Mapping[Key, Mentions]
    absents: Sequence[Sequence[str]]
    gaps: Sequence[Mapping[str, float]]
    who: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def trust(self) -> Trust:
        """h, f, d0 and the denied mentions of the base."""
        affirmed = [{name: gap > 0 for name, gap in one.items()} for one in self.gaps]
        named = [
            yes[name]
            for yes, *said in zip(affirmed, *self.points.values(), strict=True)
            for name in set.intersection(*map(set, said))
        ]
        asked = [yes[name] for yes, names in zip(affirmed, self.absents, strict=True) for name in names]
        base = [
            (count, yes[name])
            for yes, counts in zip(affirmed, self.points[BASE], strict=True)
            for name, count in counts.items()
        ]
        said, denied = sum(count for count, _ in base), sum(count for count, yes in base if not yes)
        d0 = 100 * denied / said if said else None
        return Trust(_share(named), _share(asked), d0, denied, sum(map(len, affirmed)))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _share(answers: Sequence[bool]) -> float | None:
    return sum(answers) / len(answers) if answers else None
