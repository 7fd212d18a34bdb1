"""Which judge rates the answers of a benchmark, and how its replies are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.benchmarks.data.store import data_root
from reweigh.benchmarks.judge.cache import CachedJudge, CachedRater
from reweigh.benchmarks.judge.chat import DEFAULT_KEY_VARIABLE, DEFAULT_MODEL, ChatEndpoint
from reweigh.benchmarks.judge.endpoint import DEFAULT_URL
from reweigh.benchmarks.judge.systemone import LOCAL_URL, SystemOne
from reweigh.errors import InputError, UnknownNameError

CHAT, SYSTEMONE = KINDS = ("chat", "systemone")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """A judge behind an HTTP endpoint whose verdicts are kept on disk.

    Attributes:
        kind: ``chat``, the official judge, whose text is read; or ``systemone``, which answers closed questions.
        model: The judge model; the paper's by default, for ``chat`` only.
        url: Base URL of the server; by default OpenAI's, or this machine's for ``systemone``.
        key_variable: Environment variable that holds the key; by default OpenAI's for ``chat`` and none for ``systemone``.
        prompt: File with the judge's prompt, if not the benchmark's own.
        cache: Folder of verdicts; by default one below the data folder.
        rules: How a chat judge's reply is read: ``strict`` (the paper's, the default) or ``official``.
        concurrency: Questions to ask the judge at once.
        per_minute: Maximum number of questions per minute.
        timeout: Seconds per attempt; by default 60, or 300 for ``systemone``.
    """

    kind: str = CHAT
    model: str | None = None
    url: str | None = None
    key_variable: str | None = None
    prompt: Path | None = None
    cache: Path | None = None
    rules: str | None = None
    concurrency: int = 8
    per_minute: float | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownNameError("judge", self.kind, KINDS)
        if self.kind == SYSTEMONE and self.model is None:
            raise InputError(
                "the judge systemone needs the name of its model",
                hint="--judge-option model=NAME, as in `transformers serve NAME`",
            )
        if self.kind == SYSTEMONE and self.rules is not None:
            raise InputError(
                "rules are for reading texts, and the judge systemone writes none", hint="leave out rules"
            )

    def open(self) -> CachedJudge | CachedRater:
        """Make the judge; the network is used only when it is asked something."""
        options: dict[str, Any] = {"per_minute": self.per_minute}
        if self.timeout is not None:
            options["timeout"] = self.timeout
        folder = self.cache or data_root() / "verdicts"
        if self.kind == SYSTEMONE:
            rater = SystemOne(
                str(self.model), base_url=self.url or LOCAL_URL, key_variable=self.key_variable, **options
            )
            return CachedRater(rater, folder)
        judge = ChatEndpoint(
            self.model or DEFAULT_MODEL,
            base_url=self.url or DEFAULT_URL,
            key_variable=self.key_variable or DEFAULT_KEY_VARIABLE,
            **options,
        )
        return CachedJudge(judge, folder)

    def arguments(self) -> dict[str, Any]:
        """The arguments of a judged benchmark."""
        given = {"judge": self.open(), "prompt": self.prompt, "concurrency": self.concurrency}
        return given if self.rules is None else given | {"rules": self.rules}
