"""Parse ``additional_config={"reweigh": {...}}`` and the arguments of requests. Knows nothing about vLLM's classes.

The front end resolves each request once and leaves the result under ``MARK`` in its extra arguments. An image request
without a mark was not prepared, and is reported as not edited.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Any

from reweigh.engines.vllm.plugin import KEY, logger
from reweigh.errors import InputError, require_known
from reweigh.method.edit import check_beta

BETA_KEY = "reweigh_beta"
TABLE_KEY = "reweigh_table"
EVIDENCE_KEY = "reweigh_evidence"
MARK = "reweigh.beta"
"""Extra argument that the front end sets on every image request: its beta, 0 if it is off."""
READ_FOR = "reweigh.table"
"""Extra argument that the front end sets beside it: the fingerprint of the request's table."""
SHOWN = "reweigh.shown"
"""Extra argument that the front end sets on a request that asks for the evidence of its tokens."""
DEFAULT = "default"
"""The name of the table for requests that name none."""

ALIKE = 0.8
"""Similarity from which one name is taken for a misspelling of another."""
ARGUMENTS = (KEY, BETA_KEY, EVIDENCE_KEY, TABLE_KEY)
"""The arguments of a request."""
NAME = re.compile(r"[\w.-]+", re.ASCII)
"""Names of tables; they are written into headers."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""Numbers as text; float() would also accept "1_0" and "nan"."""
SWITCH = {"on": True, "off": False, "true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where a table comes from.

    Attributes:
        table: Folder or Hub repository.
        layer: Which layer's table, where the folder holds several.
        beta: Maximum penalty of requests that do not set one; the table's tuned or the paper's if not given.
        sha256: Fingerprint of the table; any other is refused.
    """

    table: str
    layer: int | None = None
    beta: float | None = None
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The ``reweigh`` section.

    Attributes:
        sources: Every table by name, as the section gives it: its own ``table``, and further ``tables``. None only for a
            calibration.
        enabled: Whether to edit requests that do not set ``reweigh``.
        prefix_cache: "exact" computes the whole prompt of an edited request; "recall" reads vLLM's prefix cache and
            takes the evidence of such prompts from memory.
        unedited: What to do with a request that should be edited but cannot be: "report" it in its output, or "refuse".
        memory_mb: Megabytes of the device for the evidence of repeated prompts.
        force: Use tables although model, tokenizer, image processor or dtype seem to differ.
        observe: Layers to observe for a calibration, instead of editing.
        resolved: Layer and fingerprint of each table at start, filled in by the front end. Workers open the same tables,
            and vLLM's compile cache, which hashes this section, tells them apart.
    """

    sources: Mapping[str, Source]
    enabled: bool = True
    prefix_cache: str = "exact"
    unedited: str = "report"
    memory_mb: int = 256
    force: bool = False
    observe: tuple[int, ...] = ()
    resolved: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def pinned(self) -> dict[str, Source]:
        """Every table by name, as it was when the engine started."""
        return {
            name: replace(source, layer=self.resolved[name][0], sha256=self.resolved[name][1])
            for name, source in self.sources.items()
        }

    @property
    def measures_all(self) -> bool:
        """Whether to measure image requests that are not edited too, so that later ones can recall their evidence."""
        return self.prefix_cache == "recall" and not self.observe


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


Check = tuple[Callable[[Any], bool], str]
"""Whether a value may be given, and what it must be in words."""
OF_SOURCE: Mapping[str, Check] = {
    "table": (lambda value: isinstance(value, str), "a folder or a Hub repository"),
    "layer": (lambda value: value is None or _is_whole(value), "a whole number"),
    "beta": (lambda value: value is None or check_beta(value) == value, "a number"),
    "sha256": (lambda value: isinstance(value, str | None), "the fingerprint of a table"),
}
OF_ENGINE: Mapping[str, Check] = {
    "tables": (lambda value: isinstance(value, Mapping), 'a mapping: {"NAME": "FOLDER"}'),
    "enabled": (lambda value: isinstance(value, bool), "true or false"),
    "prefix_cache": (lambda value: value in ("exact", "recall"), '"exact" or "recall"'),
    "unedited": (lambda value: value in ("report", "refuse"), '"report" or "refuse"'),
    "memory_mb": (lambda value: _is_whole(value) and value >= 0, "a whole number of megabytes, 0 or more"),
    "force": (lambda value: isinstance(value, bool), "true or false"),
    "observe": (
        lambda value: isinstance(value, list | tuple) and all(map(_is_whole, value)),
        "a list of layers",
    ),
    "resolved": (lambda value: isinstance(value, Mapping), "left to vLLM's front end"),
}


def _checked(what: str, given: Mapping[str, Any], checks: Mapping[str, Check]) -> dict[str, Any]:
    require_known(what, given, checks)
    for name, value in given.items():
        fits, wanted = checks[name]
        if not fits(value):
            raise _wrong(name, value, wanted)
    return dict(given)


def settings_in(additional_config: Any) -> Settings | None:
    """Parse the settings in an ``additional_config``; ``None`` if it has no reweigh section."""
    if not isinstance(additional_config, Mapping) or KEY not in additional_config:
        return None
    section = additional_config[KEY]
    if not isinstance(section, Mapping):
        raise InputError(
            f'additional_config["{KEY}"] is {section!r}; it must be a mapping',
            hint='{"reweigh": {"table": "FOLDER"}}',
        )
    values = _checked("setting of reweigh", section, {**OF_SOURCE, **OF_ENGINE})
    sources = {name: _named_source(name, given) for name, given in values.pop("tables", {}).items()}
    default = {name: values.pop(name) for name in OF_SOURCE if name in values}
    if default.get("table") is not None:
        sources = {DEFAULT: Source(**default), **sources}
    values["observe"] = tuple(values.get("observe", ()))
    if sources and values["observe"]:
        raise InputError(
            "the section names a table and layers to observe",
            hint="name a table to edit with, or layers to observe, not both",
        )
    if DEFAULT not in sources and not values["observe"]:
        raise InputError(
            'the "reweigh" section of additional_config names no table',
            hint='{"reweigh": {"table": "FOLDER"}}; make one with `reweigh calibrate`',
        )
    return Settings(sources=sources, **values)


def _named_source(name: Any, given: Any) -> Source:
    """Parse one of the further tables."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise _wrong("a name in tables", name, "made of letters, digits, '.', '_' and '-'")
    if name == DEFAULT:
        raise InputError(f'tables names one "{DEFAULT}"', hint='give that table as "table"')
    source = {"table": given} if isinstance(given, str) else given
    if not isinstance(source, Mapping) or "table" not in source:
        raise _wrong(f"tables[{name!r}]", given, 'a folder, a Hub repository or {"table": "FOLDER", ...}')
    return Source(**_checked(f"setting of tables[{name!r}]", source, OF_SOURCE))


def check_misspelled(additional_config: Mapping[str, Any]) -> None:
    """Refuse a misspelled reweigh section that names a table; warn about other sections with a similar name."""
    ours = {*OF_SOURCE, *OF_ENGINE}
    for name, section in additional_config.items():
        if not _resembles(name, KEY):
            continue
        if isinstance(section, Mapping) and "table" in section and ours.issuperset(section):
            raise InputError(
                f'additional_config has a section "{name}"', hint=f'did you mean "{KEY}"? otherwise rename it'
            )
        logger.warning(
            'additional_config has a section "%s" and none called "%s": nothing is edited', name, KEY
        )


def asked_beta(extra_args: Mapping[str, Any] | None, settings: Settings, default: float) -> float:
    """Return the beta of a request: its own or the default, 0 if it is switched off."""
    asked = extra_args or {}
    require_known("argument of a request", [name for name in asked if _is_ours(name)], ARGUMENTS)
    switch, own = _switch(asked, KEY), asked.get(BETA_KEY)
    beta = default if own is None else check_beta(_number(own))
    if switch is None:
        return beta if own is not None or settings.enabled else 0.0
    return beta if switch else 0.0


def asked_table(extra_args: Mapping[str, Any], known: Collection[str]) -> str:
    """Return the name of the table that a request asks for."""
    given = extra_args.get(TABLE_KEY)
    if given is None:
        return DEFAULT
    require_known("table", [str(given)], known)
    return str(given)


def asks_for_evidence(extra_args: Mapping[str, Any]) -> bool:
    """Tell whether a request asks for the evidence of its tokens."""
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
