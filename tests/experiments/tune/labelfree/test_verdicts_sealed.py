"""Verdicts of a verifier verify themselves: an edited, foreign or impossible one is refused and never counted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from checkpoints import picture
from reweigh.errors import ArtifactError, MismatchError, NumericsError
from reweigh.experiments.tune.labelfree import open_pictures
from reweigh.experiments.tune.verdicts import PAGE, VERDICTS, Asking
from reweigh.files.artifacts import read_json, write_json

WANTED = [{"dog", "cat"}, {"dog"}, {"boat", "bus"}]


class Named:
    """Affirms what has an o in it."""

    def __init__(self, name: str = "one") -> None:
        self.name = name
        self.asked: list[str] = []

    def ask(self, picture: Any, names: list[str]) -> list[float]:
        self.asked += names
        return [1.5 if "o" in name else -0.5 for name in names]

    def describe(self) -> dict[str, Any]:
        return {"kind": self.name}


@pytest.fixture
def task(tmp_path: Path) -> Any:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(len(WANTED)):
        picture(number, (8, 8)).save(folder / f"{number}.png")
    return open_pictures(folder)


@pytest.fixture
def kept(task: Any, tmp_path: Path) -> Path:
    """A folder with the verdicts of a finished search."""
    asking = Asking(Named(), task, tmp_path)
    asking.ask(WANTED)
    assert asking.affirmed[2] == {"boat": True, "bus": False}
    return tmp_path


def test_what_is_kept_is_not_asked_again(kept: Path, task: Any) -> None:
    again = Named()
    asking = Asking(again, task, kept)
    asking.ask(WANTED)
    assert again.asked == []
    assert asking.gaps == [{"cat": -0.5, "dog": 1.5}, {"dog": 1.5}, {"boat": 1.5, "bus": -0.5}]


@pytest.mark.parametrize(
    ("old", "new"),
    [("-0.5", "0.5"), ('"dog"', '"cow"'), ('"record": 2', '"record": 1'), ('"sha256": "', '"sha256": "0')],
)
def test_an_edited_verdict_is_refused(kept: Path, task: Any, old: str, new: str) -> None:
    path = kept / VERDICTS
    text = path.read_text()
    path.write_text(text.replace(old, new, 1))
    assert path.read_text() != text
    with pytest.raises(ArtifactError, match=r"(?s)verifier\.json.*verdicts\.jsonl"):
        Asking(Named(), task, kept)


def test_a_lost_row_is_asked_again_and_a_torn_one_too(kept: Path, task: Any) -> None:
    lines = (kept / VERDICTS).read_text().splitlines(keepends=True)
    (kept / VERDICTS).write_text("".join(lines[1:-1]) + lines[-1][:20])
    again = Named()
    asking = Asking(again, task, kept)
    asking.ask(WANTED)
    assert sorted(again.asked) == ["bus", "cat"]
    assert Asking(Named(), task, kept).gaps == asking.gaps


def test_an_edited_page_is_refused(kept: Path, task: Any) -> None:
    page = read_json(kept / PAGE)
    write_json(kept / PAGE, page | {"verifier": {"kind": "two"}})
    with pytest.raises(ArtifactError, match="altered"):
        Asking(Named("two"), task, kept)


def test_verdicts_of_another_verifier_do_not_pass_for_its(kept: Path, task: Any, tmp_path: Path) -> None:
    with pytest.raises(MismatchError, match=r"verifier\.kind"):
        Asking(Named("two"), task, kept)
    other = tmp_path / "other"
    other.mkdir()
    Asking(Named("two"), task, other)
    (other / VERDICTS).write_bytes((kept / VERDICTS).read_bytes())
    with pytest.raises(ArtifactError, match="row 1"):
        Asking(Named("two"), task, other)


def test_files_of_an_older_version_are_refused_with_the_way_out(kept: Path, task: Any) -> None:
    page = read_json(kept / PAGE)
    page.pop("page_sha256")
    write_json(kept / PAGE, page)
    with pytest.raises(ArtifactError, match="page_sha256"):
        Asking(Named(), task, kept)


@pytest.mark.parametrize("gap", [math.nan, math.inf])
def test_a_number_that_is_none_decides_nothing(task: Any, tmp_path: Path, gap: float) -> None:
    verifier = Named()
    verifier.ask = lambda picture, names: [gap] * len(names)  # type: ignore[method-assign]
    asking = Asking(verifier, task, tmp_path)
    with pytest.raises(NumericsError, match="'cat'"):
        asking.ask(WANTED)
    assert not (tmp_path / VERDICTS).exists()
