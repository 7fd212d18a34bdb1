"""Parse ``additional_config={"reweigh": {...}}`` and the arguments of requests. Knows nothing of vLLM's classes.

The front end resolves each request once and leaves the result under ``MARK`` in its extra arguments. An image request
without a mark was not prepared, and is reported as not edited.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields, replace
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

PREFIX_MODES = ("exact", "recall")
UNEDITED = ("report", "refuse")

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

    def __post_init__(self) -> None:
        if not isinstance(self.table, str):
            raise _wrong("table", self.table, "a folder or a Hub repository")
        if self.layer is not None and not _is_whole(self.layer):
            raise _wrong("layer", self.layer, "a whole number")
        if self.beta is not None:
            check_beta(self.beta)
        if not isinstance(self.sha256, str | None):
            raise _wrong("sha256", self.sha256, "the fingerprint of a table")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The ``reweigh`` section.

    Attributes:
        table: The table of requests that name none; ``None`` only for a calibration.
        layer: See ``Source``, like ``beta`` and ``sha256``.
        tables: Further tables, by the name that requests give.
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

    table: str | None = None
    layer: int | None = None
    beta: float | None = None
    sha256: str | None = None
    tables: Mapping[str, Source] = field(default_factory=dict)
    enabled: bool = True
    prefix_cache: str = "exact"
    unedited: str = "report"
    memory_mb: int = 256
    force: bool = False
    observe: tuple[int, ...] = ()
    resolved: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, known in (("prefix_cache", PREFIX_MODES), ("unedited", UNEDITED)):
            if getattr(self, name) not in known:
                raise _wrong(name, getattr(self, name), " or ".join(f'"{one}"' for one in known))
        for name in ("enabled", "force"):
            if not isinstance(getattr(self, name), bool):
                raise _wrong(name, getattr(self, name), "true or false")
        if not _is_whole(self.memory_mb) or self.memory_mb < 0:
            raise _wrong("memory_mb", self.memory_mb, "a whole number of megabytes, 0 or more")
        if not all(_is_whole(layer) for layer in self.observe):
            raise _wrong("observe", list(self.observe), "a list of layers")
        if (self.table is not None or self.tables) and self.observe:
            raise InputError(
                "the section names a table and layers to observe",
                hint="give a table to edit with, or observe to calibrate, not both",
            )
        if self.table is None and not self.observe:
            raise InputError(
                'the "reweigh" section of additional_config names no table',
                hint='{"reweigh": {"table": "FOLDER"}}; make one with `reweigh calibrate`',
            )
        _ = self.sources  # refuses a wrong default

    @property
    def sources(self) -> dict[str, Source]:
        """Every table by name, as the section gives it."""
        if self.table is None:
            return {}
        default = Source(table=self.table, layer=self.layer, beta=self.beta, sha256=self.sha256)
        return {DEFAULT: default, **self.tables}

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
    require_known("setting of reweigh", section, [one.name for one in fields(Settings)])
    values = dict(section)
    if "observe" in values:
        if not isinstance(values["observe"], list | tuple):
            raise _wrong("observe", values["observe"], "a list of layers")
        values["observe"] = tuple(values["observe"])
    if "tables" in values:
        values["tables"] = _named_sources(values["tables"])
    return Settings(**values)


def _named_sources(given: Any) -> dict[str, Source]:
    if not isinstance(given, Mapping):
        raise _wrong("tables", given, 'a mapping: {"NAME": "FOLDER"}')
    found = {}
    for name, source in given.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise _wrong("a name in tables", name, "made of letters, digits, '.', '_' and '-'")
        if name == DEFAULT:
            raise InputError(f'tables names one "{DEFAULT}"', hint='give that table as "table"')
        if isinstance(source, str):
            source = {"table": source}
        if not isinstance(source, Mapping) or "table" not in source:
            raise _wrong(
                f"tables[{name!r}]", source, 'a folder, a Hub repository or {"table": "FOLDER", ...}'
            )
        require_known(f"setting of tables[{name!r}]", source, [one.name for one in fields(Source)])
        found[name] = Source(**source)
    return found


def check_misspelt(additional_config: Mapping[str, Any]) -> None:
    """Refuse a misspelt reweigh section that names a table; warn about other sections with a similar name."""
    ours = {one.name for one in fields(Settings)}
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


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wrong(name: str, value: Any, wanted: str) -> InputError:
    return InputError(f"{name} is {value!r}", hint=f"it must be {wanted}")
