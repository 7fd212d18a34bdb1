"""Verdicts kept on disk by the content of the question, so that a re-run costs nothing and resumes.

One sealed file for each question; one that cannot be read, was altered or answers another question is asked for again.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from reweigh.artifacts import read_sealed, sha256_json, write_sealed
from reweigh.benchmarks.judge.protocol import Judge, Request
from reweigh.errors import ArtifactError
from reweigh.text import replace_surrogates


class CachedJudge:
    """A judge that asks another one only what is not on disk yet.

    ``asked`` and ``found`` count what was paid for and what was not.
    """

    def __init__(self, judge: Judge, folder: str | Path) -> None:
        self._judge = judge
        self._folder = Path(folder)
        self._under_way: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self.asked = 0
        self.found = 0

    def describe(self) -> dict[str, Any]:
        """Name the judge behind the cache: the cache itself changes no verdict."""
        return self._judge.describe()

    def ask(self, request: Request) -> str:
        """Give the kept reply, or ask and keep it."""
        question = {"judge": self._judge.describe(), **request.to_json()}
        key = sha256_json(question)
        path = self._folder / key[:2] / f"{key}.json"
        with self._lock:
            own = self._under_way.setdefault(key, threading.Lock())
        # Two equal questions at the same time: the second waits for the first one's verdict.
        with own:
            kept = _read(path, question)
            if kept is not None:
                self._count(found=True)
                return kept
            reply = self._judge.ask(request)
            write_sealed(path, {"question": question, "reply": replace_surrogates(reply)})
            self._count(found=False)
            return replace_surrogates(reply)

    def close(self) -> None:
        """Close the judge behind the cache, if it can be closed."""
        close = getattr(self._judge, "close", None)
        if close is not None:
            close()

    def _count(self, *, found: bool) -> None:
        with self._lock:
            self.found += found
            self.asked += not found


def _read(path: Path, question: dict[str, Any]) -> str | None:
    try:
        kept = read_sealed(path)
    except ArtifactError:
        return None
    if kept.get("question") != question or not isinstance(kept.get("reply"), str):
        return None
    return str(kept["reply"])
