"""A folder that several workers ask for is made once, and again if its maker failed."""

from __future__ import annotations

import pytest

from once import make_once


class Factory:
    """What pytest gives a worker: a folder below the one of the run."""

    def __init__(self, folder):
        self.folder = folder

    def getbasetemp(self):
        return self.folder


def test_two_workers_get_one_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    calls = []

    def make(folder):
        calls.append(folder)
        (folder / "weights").write_text("1")

    found = [make_once(Factory(tmp_path / worker), "model", make) for worker in ("gw0", "gw1")]
    assert found == calls * 2
    assert (found[1] / "weights").read_text() == "1"


def test_a_failed_attempt_is_repeated(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)

    def fail(folder):
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        make_once(Factory(tmp_path), "model", fail)
    found = make_once(Factory(tmp_path), "model", lambda folder: (folder / "weights").touch())
    assert (found / "weights").exists()
