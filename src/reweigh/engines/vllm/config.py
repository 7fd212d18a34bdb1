"""What ``additional_config={"reweigh": {...}}`` says, and what one request asks for. Knows nothing of vLLM's classes.

The front end resolves each request once and leaves the result under ``MARK`` in its extra arguments, so that a worker
never has to guess: an image request without a mark was not prepared, and is reported as not edited.
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
from reweigh.method.kernels import kernel_names

BETA_KEY = "reweigh_beta"
TABLE_KEY = "reweigh_table"
EVIDENCE_KEY = "reweigh_evidence"
MARK = "reweigh.beta"
"""Extra argument that the front end sets on every image request: its beta, 0 for off."""
READ_FOR = "reweigh.table"
"""Extra argument that the front end sets beside it: the fingerprint of the request's table."""
SHOWN = "reweigh.shown"
"""Extra argument that the front end sets on a request that asks for the evidence of each of its tokens."""
DEFAULT = "default"
"""The name of the table that requests use if they name none."""

PREFIX_MODES = ("exact", "recall")
UNEDITED = ("report", "refuse")

ALIKE = 0.8
"""Similarity from which one name is taken for a misspelling of another."""
ARGUMENTS = (KEY, BETA_KEY, EVIDENCE_KEY, TABLE_KEY)
"""What a request may say."""
NAME = re.compile(r"[\w.-]+", re.ASCII)
"""The name of a table, which is written into headers."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""A number as JSON would write it, give or take a sign or a zero; float() takes "1_0" and "nan" too."""
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
        table: The table of requests that name none; ``None`` only where observations are made.
        layer: See ``Source``, like ``beta`` and ``sha256``.
        tables: Further tables by the name that requests call them by.
        enabled: Whether requests that do not say are edited.
        prefix_cache: "exact" computes the whole prompt of an edited request; "recall" reads vLLM's prefix cache and
            takes the evidence of such prompts from memory.
        unedited: What happens to a request that was to be edited and could not be: "report" in its output, or "refuse".
        memory_mb: Bound of the evidence kept for prompts that come again, in megabytes of the device.
        kernel: Ranking kernel.
        force: Use tables although model, tokenizer, image processor or dtype seem to be others.
        observe: Layers to observe for a calibration, instead of editing.
        resolved: Layer and fingerprint of each table as it was at start. The front end fills it in: workers read the
            same tables, and vLLM's compile cache, which hashes this section, distinguishes them.
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
    kernel: str = "auto"
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
        if self.kernel not in kernel_names():
            raise _wrong("kernel", self.kernel, f"one of {', '.join(kernel_names())}")
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
    """A section that is all but called reweigh: refused if it can be nothing else, pointed out in the log otherwise."""
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
    """The beta of one request from its extra arguments: its own or the default, 0 where it is switched off."""
    asked = extra_args or {}
    require_known("argument of a request", [name for name in asked if _is_ours(name)], ARGUMENTS)
    switch, own = _switch(asked, KEY), asked.get(BETA_KEY)
    beta = default if own is None else check_beta(_number(own))
    if switch is None:
        return beta if own is not None or settings.enabled else 0.0
    return beta if switch else 0.0


def asked_table(extra_args: Mapping[str, Any], known: Collection[str]) -> str:
    """The name of the table that one request asks for."""
    given = extra_args.get(TABLE_KEY)
    if given is None:
        return DEFAULT
    require_known("table", [str(given)], known)
    return str(given)


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


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wrong(name: str, value: Any, wanted: str) -> InputError:
    return InputError(f"{name} is {value!r}", hint=f"it must be {wanted}")
