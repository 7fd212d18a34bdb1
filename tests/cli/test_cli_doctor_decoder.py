"""``reweigh doctor MODEL --decoder NAME``: what a decoder does to five answers."""

from __future__ import annotations

import pytest

from reweigh.doctor import decoder as doctor

PLUGIN = """
import torch
from reweigh.rivals import Decoder

class Own(Decoder):
    name = "own"
    steps = 0

    def __init__(self, anatomy, processor=None, *, do="nothing"):
        super().__init__(anatomy, processor)
        self.do = do

    def edit(self, forward):
        self.steps += 1
        logits = forward.logits.clone()
        if self.do == "mix":
            return logits + logits.roll(1, dims=-1).mean(dim=0, keepdim=True)
        if self.do == "mute":
            logits[..., logits.argmax(dim=-1)[0, 0]] = -torch.inf
        if self.do == "break" and self.steps == 9:
            logits[0, 0, 5] = torch.nan
        return logits
"""


@pytest.fixture
def check(cli, tmp_path, monkeypatch, sandbox):
    monkeypatch.setattr(doctor, "LENGTH", 6)
    (tmp_path / "mine.py").write_text(PLUGIN)

    def run(do, *more):
        asked = ("doctor", "world", "--decoder", "own", "--decoder-option", f"do={do}")
        return cli(*asked, "--plugin", tmp_path / "mine.py", *more)

    return run


def test_a_decoder_that_changes_nothing_is_said_to(check):
    report = check("nothing", "--json").json
    assert (report["edited"], report["passes"]) == (36, 36)  # six passes for the batch and for each answer
    assert [shape[:2] for shape in report["shapes"]] == [[1, 1], [5, 1]]
    assert report["words"]["changed"] == report["answers"]["changed"] == 0 < report["words"]["of"]
    assert report["batch"]["own"] == report["batch"]["base"]
    assert min(report["cost"].values()) > 0
    assert "changed no word" in check("nothing").out


def test_a_decoder_that_acts_is_usable(check):
    done = check("mute")
    assert (done.code, "verdict: usable\n" in done.out) == (0, True)
    assert "in 5 answers" in done.out


def test_rows_that_depend_on_each_other_are_found(check):
    done = check("mix")
    assert (done.code, "NOT usable in batches" in done.out) == (1, True)


def test_every_pass_is_checked_not_only_each_shape(check):
    done = check("break")
    assert (done.code, done.out) == (1, "")
    assert "mine.py, line 13" in done.err
    assert "NaN" in done.err
