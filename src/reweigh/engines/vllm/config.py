"""What ``additional_config={"reweigh": {...}}`` says, and what one request asks for. Knows nothing of vLLM's classes.

The front end resolves each request once and leaves the result under ``MARK`` in its extra arguments, so that a worker
never has to guess: an image request without a mark was not prepared, and is reported as not edited.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import SequenceMatcher
from typing import Any

from reweigh.engines.vllm.plugin import KEY
from reweigh.errors import InputError, require_known
from reweigh.method.edit import check_beta
from reweigh.method.kernels import kernel_names

BETA_KEY = "reweigh_beta"
MARK = "reweigh.beta"
"""Extra argument that the front end sets on every image request: its beta, 0 for off."""
EVIDENCE_KEY = "reweigh_evidence"
SHOWN = "reweigh.shown"
"""Extra argument that the front end sets on a request that asks for the evidence of each of its tokens."""

PREFIX_MODES = ("exact", "recall")
UNEDITED = ("report", "refuse")
logger = logging.getLogger(__name__)

ALIKE = 0.8
"""Similarity from which one name is taken for a misspelling of another."""
ARGUMENTS = (KEY, BETA_KEY, EVIDENCE_KEY)
"""What a request may say."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""A number as JSON would write it, give or take a sign or a zero; float() takes "1_0" and "nan" too."""
SWITCH = {"on": True, "off": False, "true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The ``reweigh`` section.

    Attributes:
        table: Folder or Hub repository of the reference table; none only where observations are made.
        layer: Which layer's table, where the folder holds several.
        beta: Maximum penalty of requests that name none; the table's tuned or the paper's if not given.
        enabled: Whether requests that do not say are edited.
        prefix_cache: "exact" computes the whole prompt of an edited request; "recall" reads vLLM's prefix cache and
            takes the evidence of such prompts from memory.
        unedited: What happens to a request that was to be edited and could not be: "report" in its output, or "refuse".
        memory_mb: Bound of the evidence kept for prompts that come again, in megabytes of the device.
        kernel: Ranking kernel.
        force: Take a table although model, tokenizer, image processor or dtype seem to be others.
        observe: Layers to observe for a calibration, instead of editing.
        sha256: Fingerprint of the table; another one is refused. The front end fills it in with the layer, so that
            vLLM's compile cache, which hashes this section, tells one table from another.
    """

    table: str | None = None
    layer: int | None = None
    beta: float | None = None
    enabled: bool = True
    prefix_cache: str = "exact"
    unedited: str = "report"
    memory_mb: int = 256
    kernel: str = "auto"
    force: bool = False
    observe: tuple[int, ...] = ()
    sha256: str | None = None

    def __post_init__(self) -> None:
        if self.beta is not None:
            check_beta(self.beta)
        _one_of("prefix_cache", self.prefix_cache, PREFIX_MODES)
        _one_of("unedited", self.unedited, UNEDITED)
        if not isinstance(self.table, str | None):
            raise _wrong("table", self.table, "a folder or a Hub repository")
        if not isinstance(self.sha256, str | None):
            raise _wrong("sha256", self.sha256, "the fingerprint of a table")
        if self.layer is not None and (isinstance(self.layer, bool) or not isinstance(self.layer, int)):
            raise _wrong("layer", self.layer, "a whole number")
        for name in ("enabled", "force"):
            if not isinstance(getattr(self, name), bool):
                raise _wrong(name, getattr(self, name), "true or false")
        if isinstance(self.memory_mb, bool) or not isinstance(self.memory_mb, int) or self.memory_mb < 0:
            raise _wrong("memory_mb", self.memory_mb, "a whole number of megabytes, 0 or more")
        if self.kernel not in kernel_names():
            raise _wrong("kernel", self.kernel, f"one of {', '.join(kernel_names())}")
        if not all(isinstance(layer, int) and not isinstance(layer, bool) for layer in self.observe):
            raise _wrong("observe", list(self.observe), "a list of layers")
        if self.table is not None and self.observe:
            raise InputError(
                "the section names a table and layers to observe",
                hint="give a table to edit with, or observe to calibrate, not both",
            )
        if self.table is None and not self.observe:
            raise InputError(
                'the "reweigh" section of additional_config names no table',
                hint='{"reweigh": {"table": "FOLDER"}}; make one with `reweigh calibrate`',
            )

    @property
    def measures_all(self) -> bool:
        """Whether image requests that are not edited are measured too, so that later ones can recall them."""
        return self.prefix_cache == "recall" and not self.observe


def settings_in(additional_config: Any) -> Settings | None:
    """The settings in an ``additional_config``; ``None`` where it does not speak of reweigh."""
    if not isinstance(additional_config, Mapping) or KEY not in additional_config:
        return None
    section = additional_config[KEY]
    if not isinstance(section, Mapping):
        raise InputError(
            f'additional_config["{KEY}"] is {section!r}; it must be a mapping',
            hint='{"reweigh": {"table": "FOLDER"}}',
        )
    require_known("setting of reweigh", section, [field.name for field in fields(Settings)])
    values = dict(section)
    if "observe" in values:
        if not isinstance(values["observe"], list | tuple):
            raise _wrong("observe", values["observe"], "a list of layers")
        values["observe"] = tuple(values["observe"])
    return Settings(**values)


def check_misspelt(additional_config: Mapping[str, Any]) -> None:
    """A section that is all but called reweigh: refused if it can be nothing else, pointed out in the log otherwise."""
    ours = {field.name for field in fields(Settings)}
    for name, section in additional_config.items():
        if not _resembles(name, KEY):
            continue
        if isinstance(section, Mapping) and "table" in section and ours.issuperset(section):
            raise InputError(
                f'additional_config has a section "{name}"', hint=f'did you mean "{KEY}"? else rename it'
            )
        logger.warning(
            'additional_config has a section "%s" and none called "%s": nothing is edited', name, KEY
        )


def asked_beta(extra_args: Mapping[str, Any] | None, settings: Settings, default: float) -> float:
    """The beta of one request from its extra arguments: its own or the default, 0 where it is switched off."""
    asked = extra_args or {}
    require_known("argument of a request", [name for name in asked if _is_ours(name)], ARGUMENTS)
    switch, own = _switch(asked, KEY), asked.get(BETA_KEY)
    beta = default if own is None else check_beta(_number(own))
    if switch is None:
        return beta if own is not None or settings.enabled else 0.0
    return beta if switch else 0.0


def asks_for_evidence(extra_args: Mapping[str, Any]) -> bool:
    """Whether one request wants the evidence of each of its tokens."""
    return bool(_switch(extra_args, EVIDENCE_KEY))


def _switch(asked: Mapping[str, Any], name: str) -> bool | None:
    given = asked.get(name)
    if given is None:
        return None
    wanted = SWITCH.get(str(given).lower())
    if wanted is None:
        raise _wrong(name, given, '"on" or "off"')
    return wanted


def _is_ours(name: Any) -> bool:
    """Whether an argument's name begins like ours, or is close enough to one of ours to be a slip."""
    return str(name).lower().startswith(KEY) or any(_resembles(name, known) for known in ARGUMENTS)


def _resembles(name: Any, known: str) -> bool:
    return SequenceMatcher(None, str(name).lower(), known).ratio() > ALIKE


def _number(value: Any) -> Any:
    """A number sent as text counts as a number; anything else is left for ``check_beta`` to refuse."""
    if isinstance(value, str) and NUMBER.fullmatch(value):
        return float(value)
    return value


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise _wrong(name, value, " or ".join(f'"{one}"' for one in known))


def _wrong(name: str, value: Any, wanted: str) -> InputError:
    return InputError(f"{name} is {value!r}", hint=f"it must be {wanted}")
