"""Parse ``additional_config={"reweigh": {...}}`` and the arguments of requests. Knows nothing about vLLM's classes.

The front end resolves each request once and leaves the result under ``MARK`` in its extra arguments. An image request
without a mark was not prepared, and is reported as not edited.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from reweigh_vllm.core import InputError, check_beta, require_known
from reweigh_vllm.plugin import KEY, logger

BETA_KEY = "reweigh_beta"
EVIDENCE_KEY = "reweigh_evidence"
ARGUMENTS = (KEY, BETA_KEY, EVIDENCE_KEY)
"""The arguments of a request."""
MARK = "reweigh.beta"
"""Extra argument that the front end sets on every image request: its beta, 0 if it is off."""
SHOWN = "reweigh.shown"
"""Extra argument that the front end sets on a request that asks for the evidence of its tokens."""

ALIKE = 0.8
"""Similarity from which one name is taken for a misspelling of another."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""Numbers as text; float() would also accept "1_0" and "nan"."""
SWITCH = {"on": True, "off": False, "true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The ``reweigh`` section.

    Attributes:
        table: The reference table, a path or a Hub repository. None only for a calibration.
        layer: Which layer's table, where there are several; the front end fills it in.
        sha256: Fingerprint of the table; any other is refused. The front end fills it in, so that workers open the same
            table and vLLM's compile cache, which hashes this section, tells layers apart.
        beta: Maximum penalty of requests that do not set one; the table's tuned or the paper's if not given.
        enabled: Whether to edit requests that do not set ``reweigh``.
        prefix_cache: "exact" computes the whole prompt of an edited request; "recall" reads vLLM's prefix cache and
            takes the evidence of such prompts from memory.
        unedited: What to do with a request that should be edited but cannot be: "report" it in its output, or "refuse".
        memory_mb: Megabytes of the device for the evidence of repeated prompts.
        force: Use the table although model, tokenizer, image processor or dtype seem to differ.
        observe: Layers to observe for a calibration, instead of editing.
    """

    table: str | None = None
    layer: int | None = None
    sha256: str | None = None
    beta: float | None = None
    enabled: bool = True
    prefix_cache: str = "exact"
    unedited: str = "report"
    memory_mb: int = 256
    force: bool = False
    observe: tuple[int, ...] = ()

    @property
    def measures_all(self) -> bool:
        """Whether to measure image requests that are not edited too, so that later ones can recall their evidence."""
        return self.prefix_cache == "recall" and not self.observe


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


CHECKS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "table": (lambda value: isinstance(value, str), "a path or a Hub repository"),
    "layer": (lambda value: value is None or _is_whole(value), "a whole number"),
    "sha256": (lambda value: isinstance(value, str | None), "the fingerprint of a table"),
    "beta": (lambda value: value is None or check_beta(value) == value, "a number"),
    "enabled": (lambda value: isinstance(value, bool), "true or false"),
    "prefix_cache": (lambda value: value in ("exact", "recall"), '"exact" or "recall"'),
    "unedited": (lambda value: value in ("report", "refuse"), '"report" or "refuse"'),
    "memory_mb": (lambda value: _is_whole(value) and value >= 0, "a whole number of megabytes, 0 or more"),
    "force": (lambda value: isinstance(value, bool), "true or false"),
    "observe": (
        lambda value: isinstance(value, list | tuple) and all(map(_is_whole, value)),
        "a list of layers",
    ),
}
"""Which values each setting takes, and what they must be in words."""


def settings_in(additional_config: Any) -> Settings | None:
    """Parse the settings in an ``additional_config``; ``None`` if it has no reweigh section."""
    if not isinstance(additional_config, Mapping) or KEY not in additional_config:
        return None
    section = additional_config[KEY]
    if not isinstance(section, Mapping):
        raise InputError(
            f'additional_config["{KEY}"] is {section!r}; it must be a mapping',
            hint='{"reweigh": {"table": "TABLE"}}',
        )
    require_known("setting of reweigh", section, CHECKS)
    for name, value in section.items():
        fits, wanted = CHECKS[name]
        if not fits(value):
            raise _wrong(name, value, wanted)
    values = {**section, "observe": tuple(section.get("observe", ()))}
    if values["observe"] and "table" in values:
        raise InputError(
            "the section names a table and layers to observe",
            hint="name a table to edit with, or layers to observe, not both",
        )
    if not values["observe"] and "table" not in values:
        raise InputError(
            'the "reweigh" section of additional_config names no table',
            hint='{"reweigh": {"table": "TABLE"}}; make one with `reweigh calibrate`',
        )
    return Settings(**values)


def check_misspelled(additional_config: Mapping[str, Any]) -> None:
    """Refuse a misspelled reweigh section that names a table; warn about other sections with a similar name."""
    for name, section in additional_config.items():
        if not _resembles(name, KEY):
            continue
        if isinstance(section, Mapping) and "table" in section and set(CHECKS).issuperset(section):
            raise InputError(
                f'additional_config has a section "{name}"', hint=f'did you mean "{KEY}"? otherwise rename it'
            )
        logger.warning(
            'additional_config has a section "%s" and none called "%s": nothing is edited', name, KEY
        )


def asked_beta(extra_args: Mapping[str, Any], settings: Settings, default: float) -> float:
    """Return the beta of a request: its own or the default, 0 if it is switched off."""
    require_known("argument of a request", [name for name in extra_args if _is_ours(name)], ARGUMENTS)
    switch, own = _switch(extra_args, KEY), extra_args.get(BETA_KEY)
    beta = default if own is None else check_beta(_number(own))
    if switch is None:
        return beta if own is not None or settings.enabled else 0.0
    return beta if switch else 0.0


def asks_for_evidence(extra_args: Mapping[str, Any]) -> bool:
    """Tell whether a request asks for the evidence of its tokens."""
    return bool(_switch(extra_args, EVIDENCE_KEY))


def _switch(extra_args: Mapping[str, Any], name: str) -> bool | None:
    value = extra_args.get(name)
    if value is None:
        return None
    wanted = SWITCH.get(str(value).lower())
    if wanted is None:
        raise _wrong(name, value, '"on" or "off"')
    return wanted


def _is_ours(name: Any) -> bool:
    """Tell whether an argument's name is ours or a likely misspelling."""
    return str(name).lower().startswith(KEY) or any(_resembles(name, known) for known in ARGUMENTS)


def _resembles(name: Any, known: str) -> bool:
    return SequenceMatcher(None, str(name).lower(), known).ratio() > ALIKE


def _number(value: Any) -> Any:
    """Convert a number that was sent as text; ``check_beta`` refuses anything else."""
    if isinstance(value, str) and NUMBER.fullmatch(value):
        return float(value)
    return value


def _wrong(name: str, value: Any, wanted: str) -> InputError:
    return InputError(f"{name} is {value!r}", hint=f"it must be {wanted}")
