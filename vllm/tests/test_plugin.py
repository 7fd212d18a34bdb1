"""The entry point: it looks at configurations, and leaves a vLLM that nobody configured alone."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from types import ModuleType
from types import SimpleNamespace as Plain

import pytest

from reweigh.errors import UnsupportedError
from reweigh_vllm import plugin
from reweigh_vllm.frontend import patch_llvmlite

ROOT = Path(__file__).parents[2]


def project(path):
    return tomllib.loads(path.read_text())["project"]


def test_reweigh_alone_offers_vllm_nothing():
    """Its own distribution does, so who has not installed that one has no plugin in any process of vLLM."""
    assert plugin.GROUP not in project(ROOT / "pyproject.toml")["entry-points"]
    offered = project(ROOT / "vllm" / "pyproject.toml")["entry-points"][plugin.GROUP]
    assert offered == {plugin.KEY: "reweigh_vllm.plugin:register"}
    sources = [path for path in (ROOT / "src").rglob("*.py") if "reweigh_vllm" in path.read_text()]
    assert sources == []


class EngineArgs:
    """As vLLM's."""

    def create_engine_config(self, sections=None):
        return Plain(additional_config=sections)


def beside(monkeypatch, version="0.32.1", args=EngineArgs):
    """A vLLM of some version, with its own EngineArgs."""
    own = type("EngineArgs", (), dict(vars(args))) if args is not None else None
    monkeypatch.setitem(sys.modules, "vllm", Plain(__version__=version, __path__=[]))
    monkeypatch.setitem(sys.modules, "vllm.engine", ModuleType("vllm.engine"))
    module = ModuleType("vllm.engine.arg_utils")
    if own is not None:
        module.EngineArgs = own
    monkeypatch.setitem(sys.modules, "vllm.engine.arg_utils", module)
    return own


def test_registering_twice_looks_once(monkeypatch):
    own, seen = beside(monkeypatch), []
    monkeypatch.setattr(plugin, "look", seen.append)
    plugin.register()
    plugin.register()
    own().create_engine_config({"a": 1})
    assert [config.additional_config for config in seen] == [{"a": 1}]


@pytest.mark.parametrize("version", ["0.32.0", "0.33.0", "1.0", "0.320.1"])
def test_an_engine_without_a_section_runs_with_any_vllm(monkeypatch, version):
    own = beside(monkeypatch, version)
    plugin.register()
    for sections in (None, {}, {"other": 1}):
        assert own().create_engine_config(sections).additional_config == sections


@pytest.mark.parametrize("args", [None, object])
def test_a_vllm_in_which_everything_moved_is_left_alone(monkeypatch, caplog, args):
    beside(monkeypatch, "9.9", args)
    plugin.register()
    assert "9.9" in caplog.text


@pytest.mark.parametrize("version", ["0.34.0", "0.320.1", "0.31.9"])
def test_a_configured_engine_of_an_unknown_vllm_is_refused_with_the_tested_range(monkeypatch, version):
    own = beside(monkeypatch, version)
    plugin.register()
    with pytest.raises(UnsupportedError, match=r"made for vLLM 0\.32 and 0\.33") as caught:
        own().create_engine_config({"reweigh": {"table": "t"}})
    assert version in caught.value.message


def test_llvmlite_s_library_can_be_looked_at():
    """As vLLM looks at every value of every module for kernels."""
    ffi = pytest.importorskip("llvmlite.binding.ffi")
    patch_llvmlite()
    patch_llvmlite()
    assert vars(ffi.lib).get("kernel") is None


@pytest.mark.parametrize(
    ("found", "allowed", "reason", "hint"),
    [
        (
            [],
            None,
            "vllm.general_plugins",
            "pip install",
        ),
        (["other"], None, "package", "PYTHONPATH"),
        (["reweigh"], ["other"], "VLLM_PLUGINS", "VLLM_PLUGINS"),
    ],
)
def test_a_plugin_that_vllm_would_not_load_is_reported(monkeypatch, found, allowed, reason, hint):
    offer(monkeypatch, found, allowed)
    with pytest.raises(UnsupportedError, match=reason) as caught:
        plugin.require_plugin()
    assert hint in caught.value.hint


def offer(monkeypatch, names, allowed):
    """A vLLM beside which packages offer plugins of these names."""
    monkeypatch.setitem(sys.modules, "vllm", Plain(envs=Plain(VLLM_PLUGINS=allowed)))
    monkeypatch.setattr(plugin, "entry_points", lambda group: [Plain(name=name) for name in names])
