"""Options of the commands that answer or score a benchmark: its records, how they are answered, its judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.options import parse_options

if TYPE_CHECKING:
    from reweigh.benchmarks.judge import JudgeSettings
    from reweigh.runs.task import Runs, Task

DATA = typer.Option(None, help="Folder with the benchmark's files; by default that of `reweigh data get`.")
IMAGES = typer.Option(None, help="Folder with the images, if they are elsewhere.")
JUDGE = typer.Option(
    "chat", help="chat (the official judge) or systemone (closed questions to an open model)."
)
JUDGE_PROMPT = typer.Option(None, help="File with the judge's prompt, if it is not in the data folder.")
JUDGE_CACHE = typer.Option(None, help="Folder for stored verdicts.")
OPTION = typer.Option([], "--option", help="Option of the benchmark, as name=value; repeatable.")


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """Which records of a benchmark are answered, and how; a group of options."""

    data: Path | None = DATA
    images: Path | None = IMAGES
    option: list[str] = OPTION
    limit: int | None = typer.Option(None, min=1, help="Use only the first N records.")
    batch_size: int = typer.Option(1, min=1, help="Images to answer at once; the paper uses 1.")
    seed: int = typer.Option(42, help="Seed for drawing images and for sampling.")
    template: str | None = common.TEMPLATE

    def task(
        self,
        name: str,
        *,
        drawings: Path | None = None,
        preset: Mapping[str, Any] | None = None,
        shard: str = "1/1",
    ) -> Task:
        """Open a benchmark; options of the user override those in ``preset``."""
        from reweigh.runs.open import open_task

        return open_task(
            name,
            self.data,
            images=self.images,
            options={**(preset or {}), **parse_options(self.option)},
            limit=self.limit,
            seed=self.seed,
            shard=shard,
            drawings=drawings,
        )

    def runs(
        self, task: Task, name: str, weights: common.Weights, loaded: tuple[Any, Any] | None = None
    ) -> Runs:
        """How runs of a model are answered and recorded; a model on a cluster is described by its workers."""
        from reweigh.runs.model import describe_model
        from reweigh.runs.task import Runs

        about = {} if loaded is None else describe_model(*loaded)
        model = {"id": name, "revision": weights.revision, "dtype": weights.dtype} | about
        return Runs(task, model, self.batch_size, self.seed, self.template)


@dataclass(frozen=True, kw_only=True)
class JudgeOptions:
    """Which judge rates the answers, and how its replies are read; a group of options."""

    judge: str = JUDGE
    judge_model: str | None = typer.Option(None, help="Judge model; for chat, the paper's by default.")
    judge_url: str | None = typer.Option(
        None, help="Base URL of the server; by default OpenAI's, or port 8000 on this machine for systemone."
    )
    judge_key: str | None = typer.Option(
        None,
        help="Environment variable with the judge's key; for chat, OPENAI_API_KEY by default.",
    )
    judge_prompt: Path | None = JUDGE_PROMPT
    judge_cache: Path | None = JUDGE_CACHE
    judge_timeout: float | None = typer.Option(
        None, help="Seconds per attempt; 60 by default, 300 for systemone."
    )
    rules: str | None = typer.Option(
        None, help="How to read a chat judge's reply: strict (the paper's, default) or official."
    )
    concurrency: int = typer.Option(8, help="Questions to ask the judge at once.")
    per_minute: float | None = typer.Option(None, help="Maximum number of questions per minute.")

    def settings(self) -> JudgeSettings:
        """The settings of the judge."""
        from reweigh.benchmarks.judge import JudgeSettings

        return JudgeSettings(
            kind=self.judge,
            model=self.judge_model,
            url=self.judge_url,
            key_variable=self.judge_key,
            prompt=self.judge_prompt,
            cache=self.judge_cache,
            rules=self.rules,
            concurrency=self.concurrency,
            per_minute=self.per_minute,
            timeout=self.judge_timeout,
        )
