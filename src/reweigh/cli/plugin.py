"""``--plugin FILE``: decoders and benchmarks from a Python file, without a package and entry points."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from reweigh.errors import InputError, ReweighError
from reweigh.files.artifacts import sha256_file

_loaded: dict[Path, str] = {}


def loaded_plugins() -> list[Path]:
    """Return the files loaded in this process."""
    return list(_loaded)


def plugin_line(error: BaseException, *files: Path) -> str | None:
    """Return the last line of a plugin, or of one of ``files``, that an error passed through."""
    known = {str(file) for file in (*_loaded, *files)}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename in known:
            return f"{Path(frame.filename).name}, line {frame.lineno}, in {frame.name}"
    return None


def load_plugin(path: Path) -> None:
    """Run a file and register its ``Decoder`` and ``Benchmark`` classes under their ``name``.

    Runs of such a decoder record the hash of the file, so that a changed one does not resume them.

    Raises:
        InputError: The file cannot be run, has neither, or uses a name that is taken.
    """
    where = path.resolve()
    if not where.is_file():
        raise InputError(f"the plugin {path} does not exist", hint="--plugin needs a Python file")
    digest = sha256_file(where)
    if _loaded.get(where) == digest:
        return
    module = _run(where)
    found = _register(module, {"file": path.name, "sha256": digest})
    if not found:
        raise InputError(
            f"the plugin {path} defines no decoder or benchmark",
            hint='write a subclass of reweigh.rivals.Decoder or reweigh.lab.tasks.Benchmark with name = "..."',
        )
    _loaded[where] = digest


def _run(path: Path) -> ModuleType:
    name = f"reweigh_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"the plugin {path} is not a Python file", hint="its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that its classes can be found by name, e.g. by dataclasses
    try:
        spec.loader.exec_module(module)
    except ReweighError:
        raise
    except Exception as error:
        where = plugin_line(error, path)
        raise InputError(
            f"the plugin {path} cannot be run ({type(error).__name__}: {error}{f'; {where}' if where else ''})"
        ) from error
    return module


def _register(module: ModuleType, source: dict[str, str]) -> list[str]:
    """Add the decoders and benchmarks that the file itself defines and names."""
    from reweigh.lab.tasks import BENCHMARKS, Benchmark
    from reweigh.rivals import DECODERS, Decoder

    found = []
    for kind in vars(module).values():
        if not isinstance(kind, type) or kind.__module__ != module.__name__:
            continue
        name = vars(kind).get("name")
        if not name:
            continue
        registry: Any = (
            DECODERS if issubclass(kind, Decoder) else BENCHMARKS if issubclass(kind, Benchmark) else None
        )
        if registry is None:
            continue
        if registry is DECODERS:
            kind.source = source  # type: ignore[attr-defined]
        registry.add(name, kind)
        found.append(name)
    return found
