"""Decoders and benchmarks of one's own from a file, on every command that takes their names."""

from __future__ import annotations

import json

import pytest

from reweigh.world.scenes import scene

DECODER = """
from reweigh.rivals import Decoder

class Mute(Decoder):
    '''Never says one token.'''

    name = "mute"
    title = "Mute"

    def __init__(self, anatomy, processor=None, *, word="a"):
        super().__init__(anatomy, processor)
        self.tokens = processor.tokenizer.encode(f" {word}", add_special_tokens=False)

    def edit(self, forward):
        logits = forward.logits.clone()
        logits[..., self.tokens[0]] = float("-inf")
        return logits
"""
BENCHMARK = """
from reweigh.lab.tasks import Benchmark, Item, MetricInfo, Record
from reweigh.lab.bootstrap import ratio

class Length(Benchmark):
    name = "length"
    metrics = (MetricInfo("words", title="Words", unit="", headline=True),)

    def records(self, *, limit=None, seed=42):
        return [Record(id="a", image="a.png", prompt="Describe.", max_new_tokens=8)][:limit]

    def score_response(self, response):
        return Item(id=response.id, image="a.png", counts={"n": 1, "words": len(response.text.split())})

    @staticmethod
    def figures(counts):
        return {"words": ratio(counts["words"], counts["n"], scale=1.0)}
"""


@pytest.fixture
def own(tmp_path, sandbox):
    """Write a plugin; what it registers is forgotten afterwards."""

    def write(text, name="mine.py"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


@pytest.fixture
def drawn(tmp_path):
    scene("evaluation", index=0).image().save(tmp_path / "a.png")
    return tmp_path / "a.png"


def test_a_decoder_of_a_file_describes(cli, own, drawn):
    asked = ("describe", "world", drawn, "--max-new-tokens", "12", "--json")
    plain = cli(*asked, "--decoder", "base").json["base"]
    assert " a " in f" {plain} "
    own_words = cli(*asked, "--decoder", "mute", "--plugin", own(DECODER)).json
    assert set(own_words) == {"image", "mute"}
    assert " a " not in own_words["mute"]
    before = cli("--plugin", own(DECODER), *asked, "--decoder", "mute", "--decoder-option", "word=zebra")
    assert before.json["mute"] == plain


def test_a_benchmark_of_a_file_is_answered_and_scored(cli, own, drawn, tmp_path):
    file = own(BENCHMARK + DECODER)
    asked = (
        "eval",
        "run",
        "world",
        "-b",
        "length",
        "--data",
        tmp_path,
        "--decoder",
        "mute",
        "--plugin",
        file,
    )
    found = cli(*asked, "-o", tmp_path / "run", "--json").json
    assert 0 < found["results"]["results"]["length"]["words,none"] <= 8
    record = json.loads((tmp_path / "run" / "record.json").read_text())["record"]
    assert record["decoding"]["plugin"]["file"] == "mine.py"
    assert len(record["decoding"]["plugin"]["sha256"]) == 64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "no decoder or benchmark"),
        ("import nothing_of_this_name", "nothing_of_this_name"),
        (DECODER.replace('"mute"', '"vcd"'), "'vcd' already exists"),
    ],
)
def test_a_file_that_brings_nothing_new(cli, own, text, message):
    done = cli("doctor", "--points", "--plugin", own(text))
    assert (done.code, done.out) == (1, "")
    assert message in done.err


def test_a_file_that_is_not_there(cli, own, tmp_path):
    done = cli("doctor", "--points", "--plugin", tmp_path / "gone.py")
    assert done.code == 1
    assert "gone.py" in done.err


def test_workers_of_ray_do_not_have_it(cli, own, tmp_path):
    done = cli(
        "compare", "world", "-m", "mute", "--plugin", own(DECODER), "--ray", "local", "-o", tmp_path / "o"
    )
    assert done.code == 1
    assert "entry point" in done.err
