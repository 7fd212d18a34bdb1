"""Tables that are read again while an engine runs: all of them are put in force, or none."""

from __future__ import annotations

import asyncio
import shutil
import sys
from types import ModuleType
from types import SimpleNamespace as Plain

import pytest
import torch
from torch import nn

from reweigh.engines.vllm.capture import Capture
from reweigh.engines.vllm.config import settings_in
from reweigh.engines.vllm.frontend import FrontEnd, reload_tables
from reweigh.engines.vllm.store import Store
from reweigh.engines.vllm.working import Installed, Reweighing
from reweigh.errors import ArtifactError, InputError, MismatchError, UnsupportedError
from reweigh.tables.table import ReferenceTable
from reweigh.world import table_path

WORLD = ReferenceTable.from_pretrained(table_path())
CONFIG = Plain(model_type="llava", get_text_config=lambda: Plain(num_hidden_layers=4))
VOCABULARY = int(WORLD.tokens[-1]) + 1


def other(layer=WORLD.layer, part=2.0):
    return ReferenceTable(
        layer, WORLD.scale, WORLD.tokens, WORLD.references / part, WORLD.counts, WORLD.made_with
    )


@pytest.fixture
def folders(tmp_path):
    """Two tables, the second read at another layer."""
    shutil.copytree(table_path(), tmp_path / "one")
    other(layer=1).save_pretrained(tmp_path / "two")
    return tmp_path / "one", tmp_path / "two"


def settings_of(folders, **more):
    one, two = folders
    resolved = {"default": [WORLD.layer, WORLD.fingerprint], "two": [1, other(layer=1).fingerprint]}
    section = {"table": str(one), "tables": {"two": str(two)}, "resolved": resolved, "force": True, **more}
    return settings_in({"reweigh": section})


class Engine:
    """As vLLM's: workers that answer what a test gives them, or do what real ones do."""

    def __init__(self, answers=(None,), servers=1):
        model = Plain(hf_config=CONFIG, logprobs_mode="raw_logprobs", served_model_name="m", model="m")
        self.vllm_config = Plain(
            model_config=model, load_config=Plain(), parallel_config=Plain(_api_process_count=servers)
        )
        self.input_processor = Plain(process_inputs=None, renderer=Plain(_executor=None))
        nothing = dict.fromkeys(("add_request", "process_outputs", "abort_requests"))
        self.output_processor = Plain(log_stats=False, request_states={}, **nothing)
        self.engine_core = self
        self.answers, self.asked = list(answers), []

    def collective_rpc(self, method, args):
        self.asked.append((method, args))
        return self.answers

    async def call_utility_all_async(self, name, method, timeout, args, kwargs):
        self.asked.append((method, args))
        return [[answer] for answer in self.answers]


@pytest.fixture
def front_end(monkeypatch, folders):
    """Makes front ends beside the few modules of vLLM that they import."""
    for name, value in (("exceptions", "VLLMValidationError"), ("utils.async_utils", "make_async")):
        module = ModuleType(f"vllm.{name}")
        setattr(module, value, lambda *args, **options: None)
        monkeypatch.setitem(sys.modules, f"vllm.{name}", module)
    for name in ("vllm", "vllm.utils"):
        monkeypatch.setitem(sys.modules, name, Plain(__path__=[]))
    return lambda *args, **more: FrontEnd(Engine(*args, **more), settings_of(folders))


def replace(folder, table):
    shutil.rmtree(folder)
    table.save_pretrained(folder)


def test_new_tables_are_put_in_force_together(front_end, folders):
    found = front_end()
    llm = Plain(llm_engine=Plain(reweigh=found))
    before = dict(found.tables)
    assert not any(
        one["changed"] for one in (reload_tables(llm)["table"], reload_tables(llm)["tables"]["two"])
    )
    replace(folders[0], other())
    told = reload_tables(llm)
    assert told["table"]["changed"]
    assert told["table"]["sha256"] == other().fingerprint
    assert not told["tables"]["two"]["changed"]
    method, (asked, needed) = found.engine.asked[-1]
    assert method == "reweigh_load"
    assert asked[0] == (str(folders[0]), WORLD.layer, other().fingerprint)
    assert needed == sorted(one.sha256 for one in before.values())
    assert set(found.outputs.tables) == {*needed, other().fingerprint}
    reload_tables(llm)
    assert set(found.outputs.tables) == {one.sha256 for one in found.tables.values()}


def test_a_table_that_a_running_request_uses_is_kept(front_end, folders):
    found = front_end()
    running = found.outputs.processor.request_states
    running["a"] = Plain(_reweigh_record=Plain(sha256=WORLD.fingerprint))
    for part in (2.0, 3.0, 4.0):
        replace(folders[0], other(part=part))
        found.reload()
        assert WORLD.fingerprint in found.outputs.tables
        assert WORLD.fingerprint in found.engine.asked[-1][1][1]
    running.clear()
    found.reload()
    assert WORLD.fingerprint not in found.outputs.tables


@pytest.mark.parametrize("way", ["reload", "reload_async"])
def test_a_worker_that_cannot_open_a_table_leaves_the_old_ones_in_force(front_end, folders, way):
    found = front_end([None, "no such folder here"])
    before = found.tables
    replace(folders[0], other())
    with pytest.raises(ArtifactError, match=r"1 of 2 workers.*no such folder"):
        asyncio.run(found.reload_async()) if way == "reload_async" else found.reload()
    assert found.tables is before
    found.engine.answers = [None, None]
    told = asyncio.run(found.reload_async()) if way == "reload_async" else found.reload()
    assert told["table"]["changed"]


def test_a_bad_table_is_refused_before_any_worker_is_asked(front_end, folders):
    found = front_end()
    before = found.tables
    replace(folders[0], other())
    replace(folders[1], other(layer=0))
    with pytest.raises(MismatchError, match="layer 0") as caught:
        found.reload()
    assert "restart" in caught.value.hint
    for page in folders[1].rglob("*.json"):
        page.write_text("{}")
    with pytest.raises(ArtifactError):
        found.reload()
    assert found.tables is before
    assert found.engine.asked == []


def test_several_api_servers_cannot_replace_tables(front_end):
    with pytest.raises(UnsupportedError, match="2 API servers"):
        front_end(servers=2).reload()


def test_an_engine_without_reweigh_has_no_tables():
    with pytest.raises(InputError, match="without reweigh"):
        reload_tables(Plain(llm_engine=Plain()))


class Worker(Reweighing):
    """A worker whose model is loaded."""

    def __init__(self, settings):
        head = nn.Linear(8, VOCABULARY, bias=False)
        part = object.__new__(Installed)
        part.settings, part.runner = settings, Plain(device="cpu")
        part.model_config = Plain(hf_config=CONFIG, dtype=torch.float32, get_vocab_size=lambda: VOCABULARY)
        part.model = Plain(compute_logits=head)
        part.decoder = Plain(layers=range(4), norm=nn.LayerNorm(8))
        readers = {source.sha256: part._reader(source) for source in settings.pinned.values()}
        part.capture = Capture(settings, CONFIG, Store("cpu"), Plain(layers=(1, 2)), part.runner, readers)
        self.reweigh = part


def test_a_worker_opens_exactly_the_table_that_the_front_end_saw(folders):
    worker = Worker(settings_of(folders))
    first = dict(worker.reweigh.capture.readers)
    assert [reader.layers for reader in first.values()] == [(WORLD.layer,), (1,)]
    replace(folders[0], other())
    asked = [(str(folders[0]), WORLD.layer, other().fingerprint)]
    for wrong in ([(*asked[0][:2], "0" * 64)], [(str(folders[0]), 3, other().fingerprint)]):
        assert worker.reweigh_load(wrong, sorted(first)) is not None  # and nothing that is needed is dropped
        assert worker.reweigh.capture.readers == first
    assert worker.reweigh_load(asked, [WORLD.fingerprint]) is None
    assert set(worker.reweigh.capture.readers) == {WORLD.fingerprint, other().fingerprint}
    assert worker.reweigh.capture.readers[WORLD.fingerprint] is first[WORLD.fingerprint]
    assert worker.reweigh_load(asked, []) is None
    assert set(worker.reweigh.capture.readers) == {other().fingerprint}
    bare = object.__new__(Worker)
    assert "without reweigh" in bare.reweigh_load([], [])


def test_even_a_forced_table_must_lie_inside_the_model(folders):
    settings = settings_of(folders)
    worker = Worker(settings)
    worker.reweigh.decoder = Plain(layers=range(1), norm=nn.LayerNorm(8))
    with pytest.raises(MismatchError, match="1 decoder blocks"):
        worker.reweigh._reader(settings.pinned["default"])
    worker = Worker(settings)
    worker.reweigh.model_config.get_vocab_size = lambda: 5
    with pytest.raises(MismatchError, match="5 tokens"):
        worker.reweigh._reader(settings.pinned["default"])
