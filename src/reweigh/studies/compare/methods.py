"""The methods of a comparison: decoders by name, each in its authors' regime, with the options given for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reweigh.errors import InputError, UnsupportedError, require_known

BASE = "base"
PAPER = (BASE, "vcd", "opera", "dola", "pai", "revisit", "reweigh")
TITLES = {
    BASE: "Base (greedy)",
    "beam": "Beam search",
    "nucleus": "Nucleus sampling",
    "cut": "Cut only",
    "reweigh": "ReWEIGH",
    "vcd": "VCD",
    "opera": "OPERA",
    "dola": "DoLa",
    "pai": "PAI",
    "revisit": "ReVisiT",
    "deco": "DeCo",
    "m3id": "M3ID",
    "icd": "ICD",
    "sid": "SID",
}


@dataclass
class Method:
    """One row of the comparison.

    Attributes:
        name: Registered name of the decoder.
        options: What it was given beyond its defaults, without paths.
        regime: The decoding regime it is answered and timed in.
        attached: Its attachment; ``None`` where the model cannot serve it.
        reason: Why it cannot be served.
        table: Fingerprint of ReWEIGH's table.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    regime: dict[str, Any] = field(default_factory=dict)
    attached: Any = None
    reason: str | None = None
    table: str | None = None

    @property
    def title(self) -> str:
        """The name as papers write it."""
        return TITLES.get(self.name, self.name)

    def told(self) -> dict[str, Any]:
        """What a record keeps of the method."""
        kept: dict[str, Any] = {"decoder": self.name, "generation": self.regime, "options": self.options}
        return kept | ({"table_sha256": self.table} if self.table else {})

    def regime_in_words(self) -> str:
        """The regime for a note under the table."""
        words = []
        if self.regime.get("do_sample"):
            top = self.regime.get("top_p", 1.0)
            words.append("sampling" if top == 1.0 else f"nucleus sampling {top:g}")
        elif self.regime.get("num_beams", 1) > 1:
            words.append(f"{self.regime['num_beams']} beams")
        else:
            words.append("greedy")
        if (penalty := self.regime.get("repetition_penalty", 1.0)) != 1.0:
            words.append(f"repetition penalty {penalty:g}")
        return ", ".join(words)


def parse_methods(text: str, known: Sequence[str]) -> list[str]:
    """Names from a comma-separated list; greedy comes first whether it was named or not, as the measure of cost."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    require_known("decoder", names, known)
    return list(dict.fromkeys([BASE, *(name for name in names if name != "greedy")]))


def parse_options(pairs: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Options by method, from ``method.option=value``; a value is JSON if it can be, otherwise text."""
    found: dict[str, dict[str, Any]] = {name: {} for name in names}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        method, dot, option = key.partition(".")
        if not equals or not dot or not option:
            raise InputError(f"the option {pair!r} is not of the form method.option=value")
        if method not in found:
            raise InputError(
                f"{pair!r} is about {method!r}, which is not compared", hint="add it to --methods"
            )
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        found[method][option.replace("-", "_")] = value
    return found


def make_method(name: str, model: Any, processor: Any, options: Mapping[str, Any]) -> Method:
    """Attach a decoder; a model that cannot serve it leaves a row with the reason."""
    from reweigh.decoders import decoder
    from reweigh.decoders.base import GREEDY

    plain = {key: value for key, value in options.items() if key not in ("table", "force")}
    try:
        attached = decoder(name, model, processor, **options)
    except UnsupportedError as error:
        return Method(name, plain, reason=error.message)
    made = attached.decoder
    regime = {**getattr(made, "regime", GREEDY), **getattr(made, "generation", {})}
    method = Method(name, plain, regime, attached)
    if name == "reweigh":
        method.options |= {"beta": attached.beta, "layer": attached.layer}
        method.table = attached.table.fingerprint
    return method
