"""Another model as verifier through `/v1/systemone`: a stand-in for faults, then the embedded model really served."""

from __future__ import annotations

import base64
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from checkpoints import picture
from judge_server import Answer, JudgeServer
from reweigh.benchmarks.judge import endpoint
from reweigh.benchmarks.judge.kinds import SystemOne
from reweigh.benchmarks.judge.protocol import JudgeError
from reweigh.cli import common
from reweigh.cli.app import app
from reweigh.errors import InputError
from reweigh.experiments.tune.labelfree import open_pictures
from reweigh.experiments.tune.verdicts import Asking
from reweigh.experiments.tune.verifier import (
    LONGEST_SIDE,
    ROWS,
    ModelVerifier,
    ServedVerifier,
    data_url,
    log_odds,
)
from served import serving, world_settings

OPTIONS: dict[str, Any] = {"first_wait": 0.01, "timeout": 20, "role": "verifier"}


def affirming(body: dict[str, Any], number: int) -> Answer:
    """Yes to dogs, no to everything else, and a doubt about cats."""
    sure = {"dog": 1.0, "cat": 0.5}
    answers = {
        name: {"type": "noul", "noul": sure.get(one["instructions"].split()[3], 0.125)}
        for name, one in body["questions"].items()
    }
    return 200, {}, json.dumps({"model": "m", "answers": answers}).encode()


def test_a_picture_and_its_questions_reach_the_server() -> None:
    seen = picture(3, (40, 30))
    names = ["dog", "cat", *(f"thing{i}" for i in range(ROWS))]
    with (
        JudgeServer(affirming) as server,
        ServedVerifier(SystemOne("m", base_url=server.url, **OPTIONS)) as verifier,
    ):
        gaps = verifier.ask(seen, names)
        assert verifier.describe()["base_url"] == server.url
        assert verifier.describe()["kind"] == "systemone"
    assert gaps[0] == pytest.approx(math.log(1e9), abs=1e-6)
    assert gaps[1] == 0, "a doubt is no yes"
    assert gaps[2:] == pytest.approx([math.log(0.125 / 0.875)] * ROWS)
    assert [len(one["questions"]) for one in server.requests] == [ROWS, 2]
    assert server.requests[0]["questions"]["0"]["instructions"] == "Is there a dog in the image?"
    (sent,) = server.requests[1]["images"]
    received = Image.open(io.BytesIO(base64.b64decode(sent.partition(",")[2])))
    assert sent.startswith("data:image/png;base64,")
    assert np.array_equal(np.asarray(received), np.asarray(seen)), "without loss"


def test_a_server_that_dies_midway_loses_no_verdict(tmp_path: Path) -> None:
    """The second picture's questions meet a dead route; when it is back, only they are asked."""
    for number in range(3):
        picture(number, (8, 8)).save(tmp_path / f"{number}.png")
    task, wanted = open_pictures(tmp_path), [{"dog", "cat"}, {"dog"}, {"boat"}]
    alive: list[bool] = []

    def script(body: dict[str, Any], number: int) -> Answer:
        return affirming(body, number) if number == 0 or alive else (404, {}, b'{"detail": "Not Found"}')

    with JudgeServer(script) as server:
        for expected in (2, 4):
            with ServedVerifier(SystemOne("m", base_url=server.url, **OPTIONS)) as verifier:
                asking = Asking(verifier, task, tmp_path / "out")
                if alive:
                    asking.ask(wanted)
                else:
                    with pytest.raises(JudgeError, match="verifier"):
                        asking.ask(wanted)
                assert sum(map(len, asking.gaps)) == expected
            alive.append(True)
        assert [len(one["questions"]) for one in server.requests] == [2, 1, 1, 1]
    assert asking.affirmed == [{"cat": False, "dog": True}, {"dog": True}, {"boat": False}]


def test_a_huge_picture_is_scaled_and_stays_whole() -> None:
    huge = Image.new("RGB", (2 * LONGEST_SIDE, LONGEST_SIDE))
    sent = Image.open(io.BytesIO(base64.b64decode(data_url(huge).partition(",")[2])))
    assert sent.size == (LONGEST_SIDE, LONGEST_SIDE // 2)
    assert huge.size == (2 * LONGEST_SIDE, LONGEST_SIDE), "the caller's picture is untouched"


@given(st.floats(0, 1))
def test_yes_is_above_zero_and_finite(p: float) -> None:
    found = log_odds(p)
    assert math.isfinite(found)
    assert (found > 0) == (p > 0.5)
    if 1e-6 < p < 1 - 1e-6:
        assert 1 / (1 + math.exp(-found)) == pytest.approx(p)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((400, {}, b'{"detail": "The selected model does not support image input."}'), "accepts images"),
        ((404, {}, b'{"detail": "Not Found"}'), "POST"),
        ((200, {}, b'{"answers": {"0": {"type": "noul", "noul": NaN}}}'), "probability"),
        ((200, {}, b'{"answers": {}}'), "noul"),
    ],
)
def test_the_command_tries_the_verifier_before_anything_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, said: str
) -> None:
    monkeypatch.setattr(common.Loading, "load", lambda *_: pytest.fail("a model was loaded"))
    picture(0, (20, 20)).save(tmp_path / "0.png")
    with JudgeServer(lambda *_: answer) as server:
        asked = ["tune", "world", "--pictures", str(tmp_path), "-o", str(tmp_path / "out")]
        failed = CliRunner().invoke(app, [*asked, "--verifier", "m", "--verifier-url", server.url]).exception
        assert isinstance(failed, JudgeError), failed
        assert said in str(failed)
        assert "verifier" in str(failed)
        assert len(server.requests) == 1
        nameless = CliRunner().invoke(app, [*asked, "--verifier-url", server.url]).exception
        assert isinstance(nameless, InputError)
        assert "--verifier NAME" in str(nameless)


def test_a_server_that_does_not_answer_is_reported_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common.Loading, "load", lambda *_: pytest.fail("a model was loaded"))
    monkeypatch.setattr(endpoint, "backoff", lambda *_, **__: 0.0)
    picture(0, (20, 20)).save(tmp_path / "0.png")
    with JudgeServer(lambda *_: (503, {}, b"")) as server:
        asked = ["tune", "world", "--pictures", str(tmp_path), "-o", str(tmp_path / "out")]
        done = CliRunner().invoke(app, [*asked, "--verifier", "m", "--verifier-url", server.url])
        assert isinstance(done.exception, JudgeError)
        assert "3 attempts" in str(done.exception)
        assert server.url in done.stderr
        assert len(server.requests) == 3


@pytest.mark.slow
def test_the_embedded_model_answers_alike_loaded_and_served(tmp_path: Path) -> None:
    """The same model in another process: the same verdicts, the same choice, from the command line too."""
    from reweigh.families.load import load
    from reweigh.world import path
    from reweigh.world.scenes import scene

    names = ["dog", "cat", "boat", "bench", "car", "apple", "tree"]
    pictures = str(tmp_path / "pictures")
    drawn = CliRunner().invoke(app, ["world", "draw", "-o", pictures, "--split", "tuning", "--count", "3"])
    assert drawn.exit_code == 0
    free = ["tune", "world", "--pictures", pictures, "--layers", "2", "--betas", "3.5"]
    free += ["--batch-size", "3", "--json"]
    with serving(path(), *world_settings(tmp_path)) as server:
        here = ModelVerifier(*load(path()))
        with ServedVerifier(SystemOne(server.model, base_url=server.url, role="verifier")) as there:
            for number in range(3):
                seen = scene("evaluation", number).image()
                assert there.ask(seen, names) == pytest.approx(here.ask(seen, names), abs=1e-3)
        other = ["--verifier", server.model, "--verifier-url", server.url]
        points = []
        for name, more in (("own", []), ("served", other)):
            done = CliRunner().invoke(app, [*free, "-o", str(tmp_path / name), *more])
            assert done.exit_code == 0, done.output + repr(done.exception)
            points.append(json.loads(done.stdout))
    own, served = points
    assert served["chosen_on"]["verifier"]["who"]["kind"] == "systemone"
    own["chosen_on"]["verifier"].pop("who")
    served["chosen_on"]["verifier"].pop("who")
    assert served == own
