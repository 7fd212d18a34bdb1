"""Scoring: from responses to per-item results and ``results.json``. Needs no model.

Sources are run folders (whose shards are put together) or response files of any tool.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from reweigh.errors import ArtifactError, InputError, MismatchError
from reweigh.files.artifacts import naming, sha256_file
from reweigh.files.outputs import claim, write_output, write_sealed_output
from reweigh.files.seals import has_own_rows, read_sealed, read_sealed_rows
from reweigh.lab.runs.record import ITEMS, MANIFEST, RECORD, REPORT, RESPONSES, RESULTS, read_run, run_owner
from reweigh.lab.runs.results import Scored, existing_folder
from reweigh.lab.tasks.base import (
    Benchmark,
    Id,
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
    """Responses to score, the names of their files and, for run folders, record and manifest.

    Attributes:
        thinking: Whether the responses are what the model thought, not what it answered.
    """

    responses: list[Response]
    names: tuple[str, ...] = ()
    record: dict[str, Any] | None = None
    manifest: list[dict[str, Any]] = field(default_factory=list)
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
    if thinking and (out is None or (out / RECORD).exists()):
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
    if (folder / RECORD).exists() and [folder.resolve()] != [path.resolve() for path in paths]:
        raise InputError(f"{folder} holds another run", hint="name another folder with --out")
    return folder


def read_sources(
    paths: Sequence[Path],
    *,
    id_key: str | None = None,
    text_key: str | None = None,
    reader: Callable[..., list[Response]] = read_responses,
) -> Source:
    """Read one or several sources of the same kind; run folders may differ only in their shard.

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
    runs = [run_source(folder) for folder in folders]
    records = [_without_shard(run.record or {}) for run in runs]
    for folder, record in zip(folders[1:], records[1:], strict=True):
        if record != records[0]:
            raise MismatchError(f"{folder} is not a shard of the same run as {folders[0]}")
    return Source(
        responses=[row for run in runs for row in run.responses],
        names=names,
        record=runs[0].record,
        manifest=[row for run in runs for row in run.manifest],
    )


def run_source(folder: Path, rows: Sequence[Mapping[str, Any]] | None = None) -> Source:
    """Read the answers of one run folder, unless its rows are given."""
    record, manifest = read_run(folder)
    path = folder / RESPONSES
    if rows is None:
        if not path.is_file():
            raise InputError(
                f"the run in {folder} has no answers yet", hint="run it first: reweigh eval run ... --out"
            )
        rows = read_sealed_rows(path, owner=run_owner(folder))  # a line that a kill cut short does not count
    for number, row in enumerate(rows, start=1):
        if not isinstance(row.get("id"), str | int) or not isinstance(row.get("response"), str):
            raise ArtifactError(f"{path}, row {number}, has no id or no response", hint="run it again")
    responses = [Response(row["id"], row["response"]) for row in rows]
    return Source(responses, (folder.resolve().name,), record, manifest)


def _without_shard(record: Mapping[str, Any]) -> dict[str, Any]:
    shared = {
        key: value for key, value in record.items() if key in ("benchmark", "model", "decoding", "seed")
    }
    shared["benchmark"] = {key: value for key, value in shared["benchmark"].items() if key != "shard"}
    return shared


def score(benchmark: Benchmark, source: Source, *, partial: bool = False) -> tuple[list[Item], Summary]:
    """Score a source; a run must be finished and a file complete unless ``partial``."""
    if source.record is None:
        check_questions(source.responses, benchmark.asked)
    return benchmark.score(source.responses, ids=None if partial else asked_ids(benchmark, source))


def asked_ids(benchmark: Benchmark, source: Source) -> Collection[Id] | None:
    """Return the ids that a source should answer: those of its manifest, or of the benchmark for a bare file."""
    return benchmark.asked_ids() if source.record is None else [row["id"] for row in source.manifest]


def score_into(folder: Path, benchmark: Benchmark, source: Source, *, partial: bool = False) -> Scored:
    """Score a source and write items and results into a folder."""
    items, summary = score(benchmark, source, partial=partial)
    with naming(folder):
        folder.mkdir(parents=True, exist_ok=True)
    asked = asked_ids(benchmark, source)
    count = None if asked is None else len(asked)
    results = write_scores(folder, items, summary, source, benchmark=benchmark, asked=count)
    texts = {row.id: row.text for row in source.responses}
    return Scored(items, summary, folder, texts, results, source.record, source.manifest)


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
    own = (folder / RECORD).exists()
    if not own:
        files[RESPONSES] = _lines({"id": row.id, "response": row.text} for row in source.responses)
    claim_scores(folder)
    noted = note_files(folder) if own else []
    for name, text in files.items():
        write_output(folder / name, text)
    sealed = [*files, *([RESPONSES, *noted] if own else [])]
    hashes = {name: sha256_file(folder / name) for name in sealed}
    rows = {name: (folder / name).read_bytes().count(b"\n") for name in sealed}
    results = as_results(summary, source.record, source.names, benchmark=benchmark, asked=asked)
    results |= {"files": hashes, "rows": rows, **({"part": "thinking"} if source.thinking else {})}
    write_sealed_output(folder / RESULTS, results)
    return results


def note_files(folder: Path) -> list[str]:
    """List the files of notes in a run folder; refuse one that lost rows since it was scored."""
    owner = run_owner(folder)
    before: dict[str, tuple[str, int]] = {}
    for path in folder.glob(f"{Path(RESULTS).stem}*{Path(RESULTS).suffix}"):
        with suppress(ArtifactError):
            page = read_sealed(path)
            noted = page.get("rows", {}).keys() - {
                RESPONSES,
                *(name for name in page["files"] if "items" in name),
            }
            before |= {name: (page["files"][name], page["rows"][name]) for name in noted}
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        if path.name in (MANIFEST, RESPONSES) or not has_own_rows(path, owner=owner):
            continue
        digest, count = before.get(path.name, ("", 0))
        first = path.read_bytes().splitlines(keepends=True)[:count]
        if count and sha256(b"".join(first)).hexdigest() != digest:
            raise ArtifactError(
                f"{path} has changed since it was scored: it had {count} rows",
                hint="rows were removed or replaced; delete the run folder and run it again",
            )
        found.append(path.name)
    if lost := sorted(name for name in before if not (folder / name).exists()):
        raise ArtifactError(f"{folder / lost[0]} is gone", hint="delete the run folder and run it again")
    return found


def _lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def claim_scores(folder: Path) -> None:
    """Refuse a folder in which foreign files have the names that scoring writes."""
    names = [ITEMS, RESULTS, REPORT, *([] if (folder / RECORD).exists() else [RESPONSES])]
    claim([folder / name for name in names])


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
        "versions": {name: record.get("schema", 1)},
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
