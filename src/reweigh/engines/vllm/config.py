"""What ``additional_config={"reweigh": {...}}`` says, and what one request asks for. Knows nothing of vLLM's classes.

The front end resolves each request once and leaves the result under ``MARK`` in its extra arguments, so that a worker
never has to guess: an image request without a mark was not prepared, and is reported as not edited.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from reweigh.errors import InputError, require_known
from reweigh.method.edit import check_beta

KEY = "reweigh"
"""Name of the section in ``additional_config``, of the on/off argument and of the report in an output."""
BETA_KEY = "reweigh_beta"
MARK = "reweigh.beta"
"""Extra argument that the front end sets on every image request: its beta, 0 for off."""

PREFIX_MODES = ("exact", "recall")
UNEDITED = ("report", "refuse")
ALIKE = 0.8
"""Similarity from which one name is taken for a misspelling of another."""
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

    def __post_init__(self) -> None:
        if self.beta is not None:
            check_beta(self.beta)
        _one_of("prefix_cache", self.prefix_cache, PREFIX_MODES)
        _one_of("unedited", self.unedited, UNEDITED)
        if not isinstance(self.table, str | None):
            raise _wrong("table", self.table, "a folder or a Hub repository")
        if self.layer is not None and (isinstance(self.layer, bool) or not isinstance(self.layer, int)):
            raise _wrong("layer", self.layer, "a whole number")
        for name in ("enabled", "force"):
            if not isinstance(getattr(self, name), bool):
                raise _wrong(name, getattr(self, name), "true or false")
        if isinstance(self.memory_mb, bool) or not isinstance(self.memory_mb, int) or self.memory_mb < 0:
            raise _wrong("memory_mb", self.memory_mb, "a whole number of megabytes, 0 or more")
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
    known = additional_config if isinstance(additional_config, Mapping) else {}
    section = known.get(KEY)
    if section is None:
        _refuse_misspelt(known)
        return None
    if not isinstance(section, Mapping):
        raise InputError(
            f'additional_config["{KEY}"] is {section!r}; it must be a mapping',
            hint='{"reweigh": {"table": "FOLDER"}}',
        )
    require_known("setting of reweigh", section, [field.name for field in fields(Settings)])
    values = dict(section)
    if "observe" in values:
        values["observe"] = tuple(values["observe"])
    return Settings(**values)


def _refuse_misspelt(names: Iterable[Any]) -> None:
    """A section that is all but called reweigh would be passed over, and nothing edited."""
    for name in names:
        if difflib.SequenceMatcher(None, str(name).lower(), KEY).ratio() > ALIKE:
            raise InputError(
                f'additional_config has a section "{name}"', hint=f'did you mean "{KEY}"? else rename it'
            )


def asked_beta(extra_args: Mapping[str, Any] | None, settings: Settings, default: float) -> float:
    """The beta of one request from its extra arguments: its own or the default, 0 where it is switched off."""
    asked = extra_args or {}
    require_known("argument of a request", [name for name in asked if _is_ours(name)], [KEY, BETA_KEY])
    switch, own = asked.get(KEY), asked.get(BETA_KEY)
    beta = default if own is None else check_beta(_number(own))
    if switch is None:
        return beta if own is not None or settings.enabled else 0.0
    wanted = SWITCH.get(str(switch).lower())
    if wanted is None:
        raise _wrong(KEY, switch, '"on" or "off"')
    return beta if wanted else 0.0


def speaks_of_reweigh(extra_args: Mapping[str, Any] | None) -> bool:
    """Whether a request asks anything of reweigh."""
    return any(_is_ours(name) for name in extra_args or {})


def _is_ours(name: Any) -> bool:
    return str(name).lower().startswith(KEY)


def _number(value: Any) -> Any:
    """A number sent as text counts as a number; anything else is left for ``check_beta`` to refuse."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise _wrong(name, value, " or ".join(f'"{one}"' for one in known))


def _wrong(name: str, value: Any, wanted: str) -> InputError:
    return InputError(f"{name} is {value!r}", hint=f"it must be {wanted}")
