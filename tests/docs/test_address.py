"""The project's address is decided in one place."""

from __future__ import annotations

import runpy

import pytest
from blocks import ROOT

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "address.py"))


def test_no_file_hard_codes_the_address() -> None:
    assert SCRIPT["misplaced"]() == []


@pytest.mark.parametrize("name", ["docs/usage.md", "README.md"])
def test_another_address_is_found(name, tmp_path, monkeypatch) -> None:
    script = SCRIPT["misplaced"].__globals__
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("see https://github.com/someone/reweigh/issues and someone/reweigh-vllm")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "reweigh"\n')
    monkeypatch.setitem(script, "ROOT", tmp_path)
    listed = type("Done", (), {"stdout": f"{name}\npyproject.toml\n"})
    monkeypatch.setattr(script["subprocess"], "run", lambda *_, **__: listed)
    assert script["misplaced"]() == [f"{name}:1: https://github.com/someone/reweigh"]


def test_links_become_absolute_pictures_as_files() -> None:
    absolute, home = SCRIPT["absolute"], "https://github.com/o/reweigh"
    assert absolute("[a](docs/a.md#b)", home) == f"[a]({home}/blob/main/docs/a.md#b)"
    assert absolute('<img src="docs/b.png">', home) == f'<img src="{home}/raw/main/docs/b.png">'
    for kept in ("[a](#b)", "[a](https://example.org/x)"):
        assert absolute(kept, home) == kept
