"""A table's exported folder works as transformers' ``custom_generate``, offline, beside a model and inside its folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import reweigh
from reweigh import world
from reweigh.errors import InputError
from reweigh.families.load import load
from reweigh.files.outputs import RECORD
from reweigh.integrations.export import export_table, push_table
from reweigh.world.scenes import scene


@pytest.fixture(scope="module")
def session():
    model, processor = load(world.path())
    return reweigh.attach(model, processor, table=world.table_path())


@pytest.fixture(scope="module")
def inputs(session):
    return session.prepare([scene("evaluation", 0).image()], ["Please describe this image in detail."])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An exported folder; transformers' cache of remote modules is a temporary one."""
    import transformers.dynamic_module_utils as modules

    monkeypatch.setattr(modules, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    out = tmp_path / "a table"
    export_table(world.table_path(), out)
    return out


def generate(model, inputs, **options):
    with torch.no_grad():
        return model.generate(**inputs, **{"max_new_tokens": 30, "do_sample": False, **options})


@pytest.mark.parametrize("mode", [{}, {"num_beams": 3}])
def test_the_folder_gives_the_tokens_of_a_session(session, inputs, folder, mode):
    named = {"custom_generate": str(folder), "trust_remote_code": True, "table": str(folder)}
    with session:
        expected = generate(session.model, inputs, **mode)
    base = generate(session.model, inputs, **mode)
    assert generate(session.model, inputs, **mode, **named).tolist() == expected.tolist() != base.tolist()
    assert generate(session.model, inputs, **mode, **named, beta=0.0).tolist() == base.tolist()


def test_code_is_not_run_untrusted(session, inputs, folder):
    with pytest.raises(ValueError, match="trust_remote_code"):
        generate(
            session.model, inputs, custom_generate=str(folder), trust_remote_code=False, table=str(folder)
        )


def test_a_table_that_is_nowhere_is_refused(session, inputs, folder):
    with pytest.raises(reweigh.ReweighError, match="no reference table"):
        generate(session.model, inputs, custom_generate=str(folder), trust_remote_code=True)


def test_a_model_folder_edits_plain_generate(session, inputs, folder, tmp_path):
    from transformers import AutoModelForImageTextToText

    home = tmp_path / "model"
    shutil.copytree(world.path(), home)
    shutil.copytree(folder, home, dirs_exist_ok=True)
    model = AutoModelForImageTextToText.from_pretrained(home, trust_remote_code=True, dtype=torch.float32)
    before = vars(model)["generate"]
    with session:
        expected = generate(session.model, inputs)
    assert generate(model, inputs).tolist() == expected.tolist()
    with reweigh.attach(model, table=world.table_path(), beta=0.0):  # the block's own settings, once
        assert generate(model, inputs).tolist() == generate(session.model, inputs).tolist()
    assert vars(model)["generate"] is before


def test_what_an_export_holds(folder):
    table = reweigh.ReferenceTable.from_pretrained(folder)
    original = reweigh.ReferenceTable.from_pretrained(world.table_path())
    assert table.fingerprint == original.fingerprint
    assert table.point == original.point
    card = (folder / "README.md").read_text()
    assert "- custom_generate\n" in card.split("---")[1]
    assert f"layer {table.layer}, beta {table.point.beta:g}" in card
    assert (folder / "custom_generate/requirements.txt").read_text() == f"reweigh>={reweigh.__version__}\n"


def test_an_export_replaces_nothing_of_others(tmp_path, overwriting):
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(InputError, match=r"README\.md"):
        export_table(world.table_path(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    with overwriting():
        export_table(world.table_path(), tmp_path)
    assert "custom_generate" in (tmp_path / "README.md").read_text()


def test_a_pushed_folder_names_its_repository(monkeypatch):
    sent = {}

    class Api:
        def __init__(self, token=None):
            pass

        def create_repo(self, repo_id, **options):
            return f"hub/{repo_id}"

        def upload_folder(self, *, repo_id, folder_path, **options):
            sent.update(
                {
                    p.name: p.read_text()
                    for p in Path(folder_path).rglob("*")
                    if p.suffix != ".safetensors" and p.is_file()
                }
            )
            assert RECORD in options["ignore_patterns"]

    monkeypatch.setattr("huggingface_hub.HfApi", Api)
    assert push_table(world.table_path(), "me/table") == "hub/me/table"
    assert "TABLE = 'me/table'\n" in sent["generate.py"]
    assert 'custom_generate="me/table", trust_remote_code=True)' in sent["README.md"]
