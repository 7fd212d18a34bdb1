"""Scoring: from responses to per-item results and ``results.json``. Needs no model.

Sources are run folders (whose shards are put together) or response files of any tool.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reweigh.errors import ArtifactError, InputError
from reweigh.files.artifacts import naming, sha256_file
from reweigh.files.outputs import write_output, write_sealed_output
from reweigh.job import Job
from reweigh.lab.runs.record import ANSWERS, ITEMS, RESPONSES, RESULTS, claim_scores
from reweigh.lab.runs.results import Scored, existing_folder
from reweigh.lab.tasks.base import (
    Benchmark,
    Item,
    Response,
    Summary,
    check_questions,
    find_benchmark,
    read_responses,
)
from reweigh.lab.tasks.judge import Judge, JudgeSettings
from reweigh.lab.tasks.open import open_benchmark
from reweigh.text import THINKING, replace_surrogates, split_thinking


@dataclass(frozen=True, slots=True)
class Source:
    """Responses to score, the names of their files and, for run folders, record and questions.

    Attributes:
        thinking: Whether the responses are what the model thought, not what it answered.
    """

    responses: list[Response]
    names: tuple[str, ...] = ()
    record: dict[str, Any] | None = None
    questions: list[dict[str, Any]] = field(default_factory=list)
    thinking: bool = False

    def part(self, *, thinking: bool = False) -> Source:
        """Return the source with what was answered, or what was thought, alone."""
        if thinking and not any(split_thinking(str(row.text))[0] for row in self.responses):
            marks = ", ".join(f"{opening}...{closing}" for opening, closing in THINKING)
            raise InputError("no response has a thinking part", hint=f"it stands between marks: {marks}")
        place = 0 if thinking else 1
        chosen = [
            # the benchmark refuses a response that is not text
            replace(row, text=split_thinking(row.text)[place]) if isinstance(row.text, str) else row
            for row in self.responses
        ]
        return replace(self, responses=chosen, thinking=thinking)


def score_paths(
    paths: Sequence[Path],
    *,
    benchmark: str | None = None,
    data: Path | None = None,
    options: Mapping[str, Any] | None = None,
    out: Path | None = None,
    partial: bool = False,
    id_key: str | None = None,
    text_key: str | None = None,
    judge: Judge | JudgeSettings | None = None,
    thinking: bool = False,
) -> Scored:
    """Score a run (or all its shards) or response files, and write items and results.

    Args:
        paths: Run folders, or response files.
        benchmark: Name of the benchmark; a run folder knows its own.
        data: Folder of the benchmark's files; by default that of the run, or where ``reweigh data`` puts them.
        options: Options of the benchmark, in addition to those of the run.
        out: Folder for the results; by default the run folder.
        partial: Whether to score an unfinished run or a file with missing answers.
        id_key: Key of the id in a response file.
        text_key: Key of the text in a response file.
        judge: Who rates the answers of a judged benchmark.
        thinking: Score what the model thought before each answer, instead of the answers; needs ``out``.
    """
    if thinking and (out is None or Job.is_in(out)):
        raise InputError("scores of the thinking part need a folder of their own", hint="name it with --out")
    folder = results_folder(paths, out)
    reader = read_responses if benchmark is None else find_benchmark(benchmark).read_responses
    source = read_sources(paths, id_key=id_key, text_key=text_key, reader=reader).part(thinking=thinking)
    opened = _open_benchmark(source, benchmark, data, options, judge)
    claim_scores(folder)
    with closing(opened):
        return score_into(folder, opened, source, partial=partial)


def _open_benchmark(
    source: Source,
    name: str | None,
    data: Path | None,
    options: Mapping[str, Any] | None,
    judge: Judge | JudgeSettings | None,
) -> Benchmark:
    """Open the benchmark that a source answers, with the options of its run and the judge."""
    recorded = (source.record or {}).get("benchmark", {})
    name = name or recorded.get("name")
    if name is None:
        raise InputError("the benchmark is not known from a response file", hint="name it with --benchmark")
    made_with = dict(recorded.get("options", {})) if name == recorded.get("name") else {}
    folder = data or existing_folder(source.record, "data")
    return open_benchmark(name, folder, judge=judge, **{**made_with, **(options or {})})


def results_folder(paths: Sequence[Path], out: Path | None = None) -> Path:
    """Return the folder for the results of some sources; refuse one that holds another run."""
    for path in paths:
        if not path.exists():
            raise InputError(f"{path} does not exist", hint="give a run folder or a response file")
    folder = out or (paths[0] if len(paths) == 1 and paths[0].is_dir() else None)
    if folder is None:
        raise InputError("there is no folder for the results", hint="name a folder with --out")
    if Job.is_in(folder) and [folder.resolve()] != [path.resolve() for path in paths]:
        raise InputError(f"{folder} holds another run", hint="name another folder with --out")
    return folder


def read_sources(
    paths: Sequence[Path],
    *,
    id_key: str | None = None,
    text_key: str | None = None,
    reader: Callable[..., list[Response]] = read_responses,
) -> Source:
    """Read one or several sources of the same kind; several run folders are parts of one run.

    ``reader`` reads a response file; a benchmark with an official file format has its own.
    """
    folders = [path for path in paths if path.is_dir()]
    names = tuple(path.stem if path.is_file() else path.resolve().name for path in paths)
    if not folders:
        responses = [row for path in paths for row in reader(path, id_key=id_key, text_key=text_key)]
        # No file can hold lone surrogates; a response that is not text is refused by the benchmark.
        texts = (replace_surrogates(row.text) if isinstance(row.text, str) else row.text for row in responses)
        return Source([replace(row, text=text) for row, text in zip(responses, texts, strict=True)], names)
    if len(folders) != len(paths):
        raise InputError(
            "run folders and response files cannot be scored together",
            hint="give only run folders, or only files",
        )
    return run_source(*folders)


def run_source(*folders: Path) -> Source:
    """Read the answers of a run; several folders are parts of the same one."""
    jobs = [Job.read(folder) for folder in folders]
    whole = jobs[0] if len(jobs) == 1 else Job.open(None, jobs[0].record, parts=jobs[0].parts)
    if len(jobs) > 1:
        whole.merge(jobs)
    rows = whole.rows()
    if not rows and whole.parts:
        raise InputError(
            f"the run in {folders[0]} has no answers yet", hint="run it first: reweigh eval run ... --out"
        )
    for number, row in enumerate(rows, start=1):
        if not isinstance(row.get("id"), str | int) or not isinstance(row.get("response"), str):
            raise ArtifactError(
                f"{folders[0]}: answer {number} has no id or no response", hint="run it again"
            )
    responses = [Response(row["id"], row["response"]) for row in rows]
    names = tuple(folder.resolve().name for folder in folders)
    return Source(responses, names, whole.record, rows)


def score(benchmark: Benchmark, source: Source, *, partial: bool = False) -> tuple[list[Item], Summary]:
    """Score a source; a run must be finished and a file complete unless ``partial``."""
    if source.record is None:
        check_questions(source.responses, benchmark.asked)
        return benchmark.score(source.responses, ids=None if partial else benchmark.asked_ids())
    missing = source.record["records"] - len(source.responses)
    if missing and not partial:
        raise InputError(
            f"{missing} of {source.record['records']} records have no answer",
            hint="finish the run, name its other parts too, or score what there is (--allow-missing)",
        )
    return benchmark.score(source.responses, ids=None)


def score_into(folder: Path, benchmark: Benchmark, source: Source, *, partial: bool = False) -> Scored:
    """Score a source and write items and results into a folder."""
    items, summary = score(benchmark, source, partial=partial)
    with naming(folder):
        folder.mkdir(parents=True, exist_ok=True)
    ids = benchmark.asked_ids() if source.record is None else None
    asked = (None if ids is None else len(ids)) if source.record is None else source.record["records"]
    results = write_scores(folder, items, summary, source, benchmark=benchmark, asked=asked)
    texts = {row.id: row.text for row in source.responses}
    return Scored(items, summary, folder, texts, results, source.record, source.questions)


def write_scores(
    folder: Path,
    items: Sequence[Item],
    summary: Summary,
    source: Source,
    *,
    benchmark: Benchmark | type[Benchmark],
    asked: int | None = None,
) -> dict[str, Any]:
    """Write ``items.jsonl`` and ``results.json``, which holds the hashes of the other files; return its content.

    A folder that is not a run gets a copy of
    the responses, so that its texts can be compared with other runs. ``asked`` is the number of records that could
    have been answered, if known.
    """
    files = {ITEMS: _lines(item.to_json() for item in items)}
    if not Job.is_in(folder):
        files[RESPONSES] = _lines({"id": row.id, "response": row.text} for row in source.responses)
    claim_scores(folder)
    for name, text in files.items():
        write_output(folder / name, text)
    sealed = [*files, *([ANSWERS] if Job.is_in(folder) else [])]
    results = as_results(summary, source.record, source.names, benchmark=benchmark, asked=asked)
    results["files"] = {name: sha256_file(folder / name) for name in sealed}
    if source.thinking:
        results["part"] = "thinking"
    write_sealed_output(folder / RESULTS, results)
    return results


def _lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def as_results(
    summary: Summary,
    record: Mapping[str, Any] | None,
    sources: Sequence[str] = (),
    *,
    benchmark: Benchmark | type[Benchmark],
    asked: int | None = None,
) -> dict[str, Any]:
    """Return the summary under the keys of lm-evaluation-harness, and in full under ``summary``."""
    name = summary.benchmark
    flat: dict[str, Any] = {"alias": name}
    for metric, found in summary.metrics.items():
        flat[f"{metric},none"] = found.value
        flat[f"{metric}_low,none"] = found.low
        flat[f"{metric}_high,none"] = found.high
    directions = {metric: benchmark.metric_info(metric).direction for metric in summary.metrics}
    record = record or {}
    return {
        "results": {name: flat},
        "configs": {name: {"task": name, "scorer": dict(summary.scorer), **record.get("benchmark", {})}},
        "versions": {name: 2},
        "n-shot": {name: 0},
        "n-samples": {name: {"original": summary.n if asked is None else asked, "effective": summary.n}},
        "higher_is_better": {
            name: {metric: None if one is None else one == "higher" for metric, one in directions.items()}
        },
        "config": {
            "model": record.get("model", {}),
            "decoding": record.get("decoding", {}),
            "random_seed": record.get("seed"),
            "environment": record.get("environment", {}),
            "sources": list(sources),
        },
        "summary": summary.to_json(),
    }
