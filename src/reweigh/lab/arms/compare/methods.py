"""The methods of a comparison: decoders by name, each in its authors' regime, with the options given for it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reweigh.errors import InputError, ReweighError, UnsupportedError, require_known
from reweigh.lab.arms.compare.cost import Cost
from reweigh.lab.arms.compare.fluency import Fluency
from reweigh.lab.study import Answered, Arm, Batch, Opened
from reweigh.lab.tasks.base import find_benchmark
from reweigh.options import parse_option
from reweigh.text import in_words

if TYPE_CHECKING:
    from reweigh.engines.session import Session

BASE = "base"
STANDARD = (BASE, "sampling", "cut", "vcd", "opera", "dola", "pai", "revisit", "reweigh")
"""What is compared if no methods are named: baselines, the control of contrastive decoders, the paper's rivals."""
PUSHES = {f"push@{answer}": {"answer": answer} for answer in ("yes", "no")}
"""Controls that join on yes/no questions, with their options."""
CONTROLS = ("cut", "push")
CONTROLLED = (
    "Controls: the cut alone is what contrastive decoders add to sampling besides their contrast, and a push says one word "
    "wherever the model hesitates between yes and no. Neither looks at the picture any better, so a gain that a control "
    'shows too is no evidence for a method ("The Mirage of Performance Gains", arXiv 2504.10020).'
)
DEFAULTS = "official defaults"
"""Settings of a decoder that was given no options."""
TUNED = "tuned"
"""Label of the variant that is a method's tuned row."""
VARIANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
"""Pattern of a variant's label, which becomes part of a folder's name."""


@dataclass(frozen=True, eq=False)
class Method:
    """One row of the comparison.

    Attributes:
        name: Registered name of the decoder, followed by ``@`` and a label for a variant.
        title: The name as papers write it.
        session: The decoder tied to the model; ``None`` where the model cannot serve it.
        reason: Why it cannot be served.
        regime: How its authors decode.
        decoding: What a run's record keeps of it.
    """

    name: str
    title: str = ""
    session: Session | None = None
    reason: str | None = None
    regime: Mapping[str, Any] = field(default_factory=dict)
    decoding: Mapping[str, Any] = field(default_factory=dict)

    def arm(self) -> Arm:
        """Return the method as an arm that is timed and read again; workers answer for one without a session."""
        return Arm(self.name, self.open, self.title, (Cost(), Fluency()))

    def open(self, _: Any) -> Any:
        """Return the session, or what a record keeps of it."""
        return Opened(self.decoding, _answers_elsewhere) if self.session is None else self.session

    def regime_in_words(self) -> str:
        """Return the regime for a note under the table."""
        words = "greedy"
        if self.regime.get("do_sample"):
            top = self.regime.get("top_p", 1.0)
            words = "sampling" if top == 1.0 else f"nucleus sampling {top:g}"
        elif self.regime.get("num_beams", 1) > 1:
            words = f"{self.regime['num_beams']} beams"
        penalty = self.regime.get("repetition_penalty", 1.0)
        return words if penalty == 1.0 else f"{words}, repetition penalty {penalty:g}"


def _answers_elsewhere(_: Batch) -> Answered:
    raise ReweighError("this method has no session in this process")


def settings_in_words(decoding: Mapping[str, Any]) -> str:
    """Return the options of a decoder and the hash of its table, as a run's record has them.

    Examples:
        >>> settings_in_words({"decoder": "reweigh", "options": {"beta": 3.5, "layer": 2}, "table_sha256": "b710a419"})
        'beta 3.5, layer 2, table b710a419'
    """
    options = [f"{name} {in_words(value)}" for name, value in decoding.get("options", {}).items()]
    table = decoding.get("table_sha256")
    return ", ".join([*options, *([f"table {table[:12]}"] if table else [])]) or DEFAULTS


def standard_methods(benchmarks: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the methods to compare if none are named, with their options; yes/no questions add controls.

    Examples:
        >>> [name for name in standard_methods(["pope"]) if name not in standard_methods(["chair"])]
        ['push@yes', 'push@no']
    """
    pushes = PUSHES if any(find_benchmark(name).yes_no for name in benchmarks) else {}
    place = STANDARD.index("cut") + 1
    return {name: dict(pushes.get(name, {})) for name in (*STANDARD[:place], *pushes, *STANDARD[place:])}


def parse_methods(text: str, known: Sequence[str]) -> list[str]:
    """Read names from a comma-separated list; greedy always comes first, as the measure of cost.

    ``vcd@half`` is a variant of ``vcd`` with its own options and row.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError("no decoder is named", hint="separate several by commas: base,vcd,reweigh")
    require_known("decoder", [decoder_of(name) for name in names], known)
    for name in names:
        _, at, label = name.partition("@")
        if at and decoder_of(name) in (BASE, "greedy"):
            raise InputError(
                f"{name!r}: the base has no variants", hint="it is what the others are compared with"
            )
        if at and not VARIANT.fullmatch(label):
            raise InputError(
                f"{name!r} does not name a variant of a method",
                hint="a label of letters, digits and dashes: vcd@half",
            )
    return list(dict.fromkeys([BASE, *(name for name in names if name != "greedy")]))


def parse_options(pairs: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read options by method from ``method.option=value``; a value is JSON if it can be, otherwise text."""
    form = "method.option=value"
    found: dict[str, dict[str, Any]] = {name: {} for name in names}
    for pair in pairs:
        key, value = parse_option(pair, form)
        method, dot, option = key.partition(".")
        if not dot or not option:
            raise InputError(f"the option {pair!r} is not of the form {form}")
        if method not in found:
            raise InputError(f"{pair!r} is for {method!r}, which is not compared", hint="add it to --methods")
        found[method][option.replace("-", "_")] = value
    return found


def decoder_of(name: str) -> str:
    """Return the decoder of a method or variant."""
    return name.partition("@")[0]


def titled(title: str, label: str) -> str:
    """Return the title of a variant.

    Examples:
        >>> titled("VCD", "half"), titled("Yes/no push (control)", "no"), titled("VCD", "")
        ('VCD (half)', 'Yes/no push (control, no)', 'VCD')
    """
    if not label:
        return title
    return f"{title.removesuffix(')')}, {label})" if title.endswith(")") else f"{title} ({label})"


def make_method(name: str, model: Any, processor: Any, options: Mapping[str, Any]) -> Method:
    """Tie a decoder to the model; a model that cannot serve it leaves a row with the reason."""
    from reweigh.rivals import DECODERS, decoder

    own, _, label = name.partition("@")
    title = titled(DECODERS[own].title or own, label)
    try:
        session = decoder(own, model, processor, **options)
    except UnsupportedError as error:
        return Method(name, title, reason=error.message)
    return Method(name, title, session, regime=session.decoder.decoding(), decoding=session.record())
