"""Progress: lines now and then where no terminal is, nothing where nobody wants it."""

from __future__ import annotations

import pytest

from reweigh import progress as module
from reweigh.progress import bar, be_quiet, progress


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.0001)


def test_short_work_is_silent_off_a_terminal(capsys):
    assert list(progress(range(5), "counting")) == [0, 1, 2, 3, 4]
    assert capsys.readouterr().err == ""


def test_long_work_writes_whole_lines(capsys, impatient):
    with bar("answering", total=40, done=10, unit="answer") as shown:
        for _ in range(30):
            sum(range(20_000))
            shown.update(1)
    told = capsys.readouterr().err
    assert "\r" not in told
    lines = told.splitlines()
    assert 1 < len(lines) <= 31
    assert all(line.startswith("answering: ") and " of 40 (" in line for line in lines)
    assert lines[-1].startswith("answering: 40 of 40 (100%)")


def test_work_that_is_named_anew(capsys, impatient):
    with bar("tuning", total=20) as shown:
        for _ in range(20):
            shown.set_description("layer-2-beta-1")
            sum(range(20_000))
            shown.update(1)
    assert "layer-2-beta-1: 20 of 20 (100%)" in capsys.readouterr().err


def test_a_total_that_is_not_known(capsys, impatient):
    for _ in progress((sum(range(20_000)) for _ in range(20)), "reading"):
        pass
    assert "reading: " in (told := capsys.readouterr().err)
    assert "None" not in told


def test_quiet_and_asked_for(capsys, impatient):
    be_quiet(True)
    try:
        list(progress(range(5), "counting", show=True))
        with bar("timing", total=2) as shown:
            shown.set_postfix_str("a variant")
            shown.update()
    finally:
        be_quiet(False)
    assert capsys.readouterr().err == ""
    list(progress(range(5), "counting", show=True))
    assert "counting" in capsys.readouterr().err


def test_a_note_behind_the_bar_writes_no_line_of_its_own(capsys):
    clock = [1000.0]
    with bar("timing", total=60, unit="run") as shown:
        shown._time = lambda: clock[0]
        shown.start_t = shown.last_print_t = clock[0]
        for _ in range(60):
            shown.set_postfix_str("a variant")
            clock[0] += 2.0
            shown.update()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4, "two minutes of work, a line each half"
    assert lines[-1].startswith("timing: 60 of 60")
