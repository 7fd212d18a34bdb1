"""Every example runs from start to end and shows its point."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
PUBLIC = re.compile(r"reweigh(\.(rivals|world|testing))?")


@pytest.fixture
def run(capsys, monkeypatch, tmp_path, sandbox):
    """Run an example as a program; return the lines it prints."""
    monkeypatch.chdir(tmp_path)

    def lines(name: str, *arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return lines


@pytest.mark.parametrize(
    "path", [path for path in EXAMPLES if path.stem != "one_file"], ids=lambda path: path.stem
)
def test_an_example_uses_public_names_only(path):
    imported = re.findall(r"^(?:from|import) (reweigh[\w.]*)", path.read_text(), re.MULTILINE)
    assert imported
    assert [name for name in imported if not PUBLIC.fullmatch(name)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["own_generate", "share_a_table"])
def test_reweigh_leaves_out_what_is_not_there(run, name):
    base, edited = run(name)[-2:]
    assert "ReWEIGH" in edited
    for absent in ("traffic light", "person") if name == "own_generate" else ("giraffe",):
        assert absent in base
        assert absent not in edited


@pytest.mark.slow
def test_a_decoder_of_ones_own_changes_what_it_says_it_changes(run):
    base, without_traffic, without_person = run("own_decoder")
    assert "traffic" in base
    assert "traffic" not in without_traffic.partition(":")[2]
    assert "person" not in without_person.partition(":")[2]


@pytest.mark.slow
def test_several_decoders_describe_one_scene(run):
    names = [line.split()[0] for line in run("compare_decoders")[1:-1]]
    assert names == ["base", "deco", "m3id", "reweigh"]


@pytest.mark.slow
def test_what_is_not_there_lacks_support(run):
    states = {line.split()[0]: line.split()[1] for line in run("unsupported_words")[1:]}
    assert {word.strip(".,") for word, state in states.items() if state == "unsupported"} == {
        "giraffe",
        "surfboard",
    }


@pytest.mark.slow
def test_a_server_is_asked_with_its_own_client(run):
    from reweigh import load, world
    from reweigh.serve.app import Server
    from reweigh.serve.served import Served
    from serve.live import running

    model, processor = load(world.path())
    served = Served(model, processor, name="reweigh-world", table=world.table_path(), world=True)
    with running(Server(served)) as server:
        off, on = run("ask_the_server", server.url)
    assert "traffic light" in off
    assert "traffic light" not in on
