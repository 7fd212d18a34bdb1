"""Several tables in one engine, and new ones without a restart."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import urllib.error
from pathlib import Path

import pytest
from client import ask, reload, said, serving
from harness import OFF, running, told

from reweigh.engines.vllm.frontend import reload_tables
from reweigh.errors import ArtifactError, MismatchError
from reweigh.tables.table import ReferenceTable

ROOT = Path(__file__).parents[4]
SERVE = '"$env/bin/vllm" '
KEY = "secret"


@pytest.fixture
def table(world, tmp_path):
    """A copy of the table, to be replaced while an engine runs."""
    return shutil.copytree(world.table, tmp_path / "table")


def replace(folder, table):
    shutil.rmtree(folder)
    table.save_pretrained(folder)


def of_layer(table, layer):
    return ReferenceTable(layer, table.scale, table.tokens, table.references, table.counts, table.made_with)


@pytest.mark.parametrize("mode", ["exact", "recall"])
def test_requests_name_their_table_and_a_new_one_needs_no_restart(world, table, mode):
    from vllm.exceptions import VLLMValidationError

    settings = {"table": str(table), "layer": None, "tables": {"other": world.other}, "prefix_cache": mode}
    with running(world, reweigh=settings, block_size=32, enable_prefix_caching=True) as engine:
        kinds, cases = ["edited", "other", "plain", "edited", "other"], [0, 0, 0, 4, 4]
        for answer, kind in zip(engine.check(kinds, cases), kinds, strict=True):
            if kind != "plain":
                assert told(answer)["layer"] == (1 if kind == "other" else world.layer)
        again = engine.check(["other", "edited"], [0, 0])
        assert {told(one)["evidence"] for one in again} == {"recalled"}
        with pytest.raises(VLLMValidationError, match="known: default, other"):
            engine.answer_with({"reweigh_table": "another"})

        assert not reload_tables(engine.llm)["table"]["changed"]
        other = ReferenceTable.from_pretrained(world.other["table"], layer=world.other["layer"])
        replace(table, of_layer(other, 0))
        with pytest.raises(MismatchError, match="layer 0") as refused:
            reload_tables(engine.llm)
        assert "restart" in refused.value.hint
        shutil.rmtree(table)
        with pytest.raises(ArtifactError):
            reload_tables(engine.llm)
        engine.check(["edited", "other"], [4, 0])

        other.save_pretrained(table)
        now = reload_tables(engine.llm)
        assert now["table"] == {"sha256": other.fingerprint, "layer": 1, "beta": world.beta, "changed": True}
        assert not now["tables"]["other"]["changed"]
        for case in (0, 4):
            answer = engine.answer_with({"reweigh_beta": world.other["beta"]}, case)
            assert list(answer.outputs[0].token_ids) == world.cases[case]["other"][: world.tokens]
            assert told(answer)["layer"] == 1
            assert told(answer)["evidence"] == "recalled"  # it is the table of the other name
        halved = ReferenceTable(
            1, other.scale, other.tokens, other.references / 2, other.counts, other.made_with
        )
        replace(table, halved)
        reload_tables(engine.llm)
        assert (
            told(engine.answer_with(None))["evidence"] == "measured"
        )  # though its prompt may be in the cache


def documented(table, other):
    """The command for a machine without a GPU, as docs/vllm.md prints it, with these tables."""
    text = (ROOT / "docs" / "vllm.md").read_text().replace("\\\n", " ")
    [line] = [line for line in text.splitlines() if SERVE in line]
    words = shlex.split(line[line.index(SERVE) :].replace("$env", sys.prefix))
    place = words.index("--additional-config") + 1
    section = json.loads(words[place])["reweigh"]
    assert section == {"table": "src/reweigh/world/table"}
    words[place] = json.dumps({"reweigh": {"table": str(table), "tables": {"other": other}}})
    return words


def test_the_documented_server_serves_tables_by_name_and_reads_new_ones(world, table, tmp_path):
    tokens = 10  # enough to differ, also on the interpreter
    model = "src/reweigh/world/checkpoint"
    options = {"key": KEY, "model": model, "max_tokens": tokens}
    with serving([*documented(table, world.other), "--api-key", KEY], tmp_path, threads="0") as address:
        expected = {"edited": None, "other": {"reweigh_table": "other"}, "plain": OFF}
        for kind, asked in expected.items():
            answer = ask(address, world, 4, asked, **options)
            assert answer["choices"][0]["token_ids"] == world.cases[4][kind][:tokens], kind
        default = f"edited; beta={world.beta:g}; layer={world.layer}"
        named = f"edited; beta={world.other['beta']:g}; layer=1; table=other"
        assert said[-3:] == [default, named, None]
        with pytest.raises(urllib.error.HTTPError) as failed:
            ask(address, world, 4, {"reweigh_table": "another"}, **options)
        assert failed.value.code == 400
        assert "known: default, other" in failed.value.read().decode()

        for key in (None, "guessed"):
            with pytest.raises(urllib.error.HTTPError) as failed:
                reload(address, key)
            assert failed.value.code == 401
        other = ReferenceTable.from_pretrained(world.other["table"], layer=1)
        replace(table, of_layer(other, 0))
        with pytest.raises(urllib.error.HTTPError) as failed:
            reload(address, KEY)
        assert failed.value.code == 409
        assert "restart" in json.load(failed.value)["error"]["message"]
        assert (
            ask(address, world, 4, None, **options)["choices"][0]["token_ids"]
            == world.cases[4]["edited"][:tokens]
        )
        replace(table, other)
        assert reload(address, KEY)["table"]["sha256"] == other.fingerprint
        answer = ask(address, world, 4, {"reweigh_beta": world.other["beta"]}, **options)
        assert answer["choices"][0]["token_ids"] == world.cases[4]["other"][:tokens]
