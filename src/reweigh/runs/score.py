"""Scoring: from responses to per-item results, ``results.json`` and a page to look at. Needs no model.

Sources are run folders (whose shards are put together) or response files of any tool.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from reweigh.artifacts import read_json, read_jsonl, write_json, write_text
from reweigh.benchmarks.base import Benchmark, Id, Item, Metric, Response, Summary, read_responses
from reweigh.benchmarks.mmvet import CAPABILITIES
from reweigh.errors import InputError, MismatchError
from reweigh.runs.record import ITEMS, RECORD, RESPONSES, RESULTS, read_run

Direction = Literal["lower", "higher"]

DIRECTIONS: Mapping[str, Direction] = {
    **dict.fromkeys(("chair_s", "chair_i", "chair_i_distinct", "chair", "hal", "cog"), "lower"),
    **dict.fromkeys(("hallucination_rate", "unparsed"), "lower"),
    **dict.fromkeys(("recall", "precision", "f1", "set_precision", "set_f1", "cover", "accuracy"), "higher"),
    **dict.fromkeys(("amber_score", "score", "total"), "higher"),
}
"""In which direction a figure is better; others have no better direction or are not known to have one."""


@dataclass(frozen=True, slots=True)
class Source:
    """Responses to score, what they are called and, if they come from run folders, their record and manifest."""

    responses: list[Response]
    names: tuple[str, ...] = ()
    record: dict[str, Any] | None = None
    manifest: list[dict[str, Any]] = field(default_factory=list)


def direction(name: str) -> Direction | None:
    """In which direction a figure is better; a breakdown (``score_attribute``, ``relation_f1``) follows its figure."""
    if name in CAPABILITIES or name.startswith("exactly_"):
        return "higher"
    for key in sorted(DIRECTIONS, key=len, reverse=True):
        if name == key or name.startswith(f"{key}_") or name.endswith(f"_{key}"):
            return DIRECTIONS[key]
    return None


def read_sources(paths: Sequence[Path], *, id_key: str | None = None, text_key: str | None = None) -> Source:
    """Read one or several sources of the same kind; run folders must differ in their shard alone."""
    folders = [path for path in paths if path.is_dir()]
    names = tuple(path.stem if path.is_file() else path.resolve().name for path in paths)
    if not folders:
        responses = [row for path in paths for row in read_responses(path, id_key=id_key, text_key=text_key)]
        return Source([_writable(row) for row in responses], names)
    if len(folders) != len(paths):
        raise InputError("run folders and response files cannot be scored together", hint="give one kind")
    runs = [(folder, *read_run(folder)) for folder in folders]
    records = [_without_shard(record) for _, record, _ in runs]
    for folder, record in zip(folders[1:], records[1:], strict=True):
        if record != records[0]:
            raise MismatchError(f"{folder} is not a shard of the same run as {folders[0]}")
    return Source(
        responses=[row for folder, _, _ in runs for row in _read_run_responses(folder)],
        names=names,
        record=runs[0][1],
        manifest=[row for _, _, rows in runs for row in rows],
    )


def _writable(response: Response) -> Response:
    """Replace half surrogate pairs, which JSON escapes can carry and no file of ours can."""
    return Response(response.id, response.text.encode("utf-8", "replace").decode("utf-8"))


def _read_run_responses(folder: Path) -> list[Response]:
    """The finished answers of a run; a line that a kill cut short was never finished."""
    path = folder / RESPONSES
    if not path.is_file():
        raise InputError(
            f"the run in {folder} has no answers yet", hint="run it first: reweigh eval run ... --out"
        )
    return [Response(row["id"], row["response"]) for row in read_jsonl(path)]


def _without_shard(record: Mapping[str, Any]) -> dict[str, Any]:
    shared = {
        key: value for key, value in record.items() if key in ("benchmark", "model", "decoding", "seed")
    }
    shared["benchmark"] = {key: value for key, value in shared["benchmark"].items() if key != "shard"}
    return shared


def score(benchmark: Benchmark, source: Source, *, partial: bool = False) -> tuple[list[Item], Summary]:
    """Score a source; a run must be finished unless ``partial``."""
    ids: list[Id] | None = [row["id"] for row in source.manifest]
    if source.record is None or partial:
        ids = None
    return benchmark.score(source.responses, ids=ids)


def write_scores(folder: Path, items: Sequence[Item], summary: Summary, source: Source) -> dict[str, Any]:
    """Write ``items.jsonl`` and ``results.json``; gives the content of the latter.

    A folder that is no run of its own gets a copy of the responses, so that runs can be compared with their texts.
    """
    if not (folder / RECORD).exists():
        rows = ({"id": row.id, "response": row.text} for row in source.responses)
        write_text(folder / RESPONSES, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    write_text(
        folder / ITEMS, "".join(json.dumps(item.to_json(), ensure_ascii=False) + "\n" for item in items)
    )
    results = as_results(summary, source.record, source.names)
    write_json(folder / RESULTS, results)
    return results


def as_results(
    summary: Summary, record: Mapping[str, Any] | None, sources: Sequence[str] = ()
) -> dict[str, Any]:
    """The summary in the keys of lm-evaluation-harness, the whole of it under ``summary``."""
    name = summary.benchmark
    flat: dict[str, Any] = {"alias": name}
    for metric, found in summary.metrics.items():
        flat[f"{metric},none"] = found.value
        flat[f"{metric}_low,none"] = found.low
        flat[f"{metric}_high,none"] = found.high
    record = record or {}
    return {
        "results": {name: flat},
        "configs": {name: {"task": name, "scorer": dict(summary.scorer), **record.get("benchmark", {})}},
        "versions": {name: record.get("schema", 1)},
        "n-shot": {name: 0},
        "n-samples": {name: {"original": record.get("records", summary.n), "effective": summary.n}},
        "higher_is_better": {name: {metric: _higher(metric) for metric in summary.metrics}},
        "config": {
            "model": record.get("model", {}),
            "decoding": record.get("decoding", {}),
            "random_seed": record.get("seed"),
            "environment": record.get("environment", {}),
            "sources": list(sources),
        },
        "summary": summary.to_json(),
    }


def _higher(metric: str) -> bool | None:
    found = direction(metric)
    return None if found is None else found == "higher"


def read_items(folder: Path) -> tuple[str, list[Item], dict[Id, str], dict[str, Any]]:
    """Benchmark name, items, texts by id and results of a scored folder."""
    if not (folder / RESULTS).is_file() or not (folder / ITEMS).is_file():
        hint = f"reweigh eval score {folder}" if (folder / RECORD).is_file() else "give a scored run folder"
        raise InputError(f"{folder} holds no scored run ({ITEMS} and {RESULTS})", hint=hint)
    results = read_json(folder / RESULTS)
    items = [Item.from_json(row) for row in read_jsonl(folder / ITEMS)]
    path = folder / RESPONSES
    texts: dict[Id, str] = {row.id: row.text for row in read_responses(path)} if path.is_file() else {}
    return str(results["summary"]["benchmark"]), items, texts, results


def read_metrics(results: Mapping[str, Any]) -> dict[str, Metric]:
    """The figures of a results file."""
    return {name: Metric(**row) for name, row in results["summary"]["metrics"].items()}
