"""Which judge rates the answers of a benchmark, and how its replies are read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.benchmarks.data.store import data_root
from reweigh.benchmarks.judge.cache import CachedJudge
from reweigh.benchmarks.judge.endpoint import DEFAULT_KEY_VARIABLE, DEFAULT_MODEL, DEFAULT_URL, ChatEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """A judge behind an OpenAI-compatible endpoint whose verdicts are kept on disk.

    Attributes:
        model: The judge model.
        url: Base URL of the server.
        key_variable: Environment variable that holds the key.
        prompt: File with the judge's prompt, if not the benchmark's own.
        cache: Folder of verdicts; by default one below the data folder.
        rules: How a reply is read: ``strict`` (the paper's) or ``official``.
        concurrency: Questions put to the judge at once.
        per_minute: Largest number of questions in a minute.
    """

    model: str = DEFAULT_MODEL
    url: str = DEFAULT_URL
    key_variable: str = DEFAULT_KEY_VARIABLE
    prompt: Path | None = None
    cache: Path | None = None
    rules: str = "strict"
    concurrency: int = 8
    per_minute: float | None = None

    def open(self) -> CachedJudge:
        """Make the judge; the network is used only when it is asked something."""
        endpoint = ChatEndpoint(
            self.model, base_url=self.url, key_variable=self.key_variable, per_minute=self.per_minute
        )
        return CachedJudge(endpoint, self.cache or data_root() / "verdicts")

    def arguments(self) -> dict[str, Any]:
        """The arguments of a judged benchmark."""
        return {
            "judge": self.open(),
            "prompt": self.prompt,
            "rules": self.rules,
            "concurrency": self.concurrency,
        }
