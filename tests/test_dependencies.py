"""Dependencies point inward: read from the source, so that an import hidden in a function counts too."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "reweigh"
MODULES = {"job", "measuring", "intervene", "attached"}
"""Modules beside the packages that have a place in the order; all others are the ground, which stands alone."""
GROUND = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__", "testing"} - MODULES
ORDER = (
    "files",
    "job",
    "method",
    "tables",
    "families",
    "engines",
    "measuring",
    "intervene",
    "attached",
    "rivals",
    "doctor",
    "calibration",
    "world",
    "lab",
    "serve",
    "integrations",
    "cli",
)
"""Every package, the innermost first; each may import those before it. CONTRIBUTING.md draws the same order."""
CORE = {"files", "method", "tables"}
APART = {
    "job": {"files"},
    "method": set(),
    "tables": {"files", "method"},
    "families": CORE,
    "engines": {*CORE, "families"},
    "calibration": {"job", *CORE, "families", "engines"},
    "world": {*CORE, "families"},
}
"""What a package may import besides the ground, where it is less than all before it."""
NUMBERS = {"lab.estimate", "lab.bootstrap", "lab.enough", "lab.frame"}
SHARED = {f"engines.{name}" for name in ("answer", "base", "reader", "rows", "run", "verify")}
INSIDE = {
    "engines.transformers": SHARED,
    "engines.mlx": SHARED,
    "method.kernels": set(),
    "rivals.tools": set(),
    "rivals.opera": {"rivals.tools"},
    "rivals.halc": {"rivals.tools", "rivals.dola"},
    "lab.tasks": NUMBERS,
    "lab.runs": {*NUMBERS, "lab.tasks"},
    "lab.views": {*NUMBERS, "lab.tasks", "lab.runs"},
    "lab.study": {*NUMBERS, "lab.tasks", "lab.runs"},
    "lab.arms": {*NUMBERS, "lab.tasks", "lab.runs", "lab.study", "lab.views"},
    "lab.paper": {*NUMBERS, "lab.tasks", "lab.runs", "lab.study", "lab.views", "lab.arms", "lab.read"},
}
"""What a sub-package may import of the package it is in."""
HEAVY = {"torch", "transformers", "numba"}


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Every module a file imports, type-checking imports left out."""
    return frozenset(read_imports(path))


def read_imports(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            # `from reweigh.cli import common` names a module, `from reweigh.errors import InputError` does not
            for alias in node.names:
                inside = SOURCE.parent.joinpath(*f"{node.module}.{alias.name}".split("."))
                is_module = inside.is_dir() or inside.with_suffix(".py").is_file()
                yield f"{node.module}.{alias.name}" if is_module else str(node.module)


def top_level(path: Path) -> Iterator[str]:
    """Modules that are imported as soon as the file is."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)


def own(names: Iterable[str]) -> set[str]:
    """Modules of this package, without its name; the bare package becomes an empty name."""
    return {name.partition(".")[2] for name in names if name.partition(".")[0] == "reweigh"}


def within(name: str, allowed: set[str]) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in allowed)


def files(package: str) -> list[Path]:
    if (file := SOURCE / f"{package}.py").is_file():
        return [file]
    return sorted((SOURCE / package).rglob("*.py"))


def test_the_reader_sees_imports_at_every_depth(tmp_path):
    file = tmp_path / "x.py"
    file.write_text(
        "import torch.nn\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import hidden\n"
        "def f():\n    from reweigh.cli import common\n    from reweigh.errors import InputError\n"
    )
    assert imports(file) == {"torch.nn", "typing", "reweigh.cli.common", "reweigh.errors"}
    assert own(imports(file)) == {"cli.common", "errors"}


@pytest.mark.parametrize("name", sorted(GROUND))
def test_the_ground_stands_alone(name):
    found = imports(SOURCE / f"{name}.py")
    assert {part for part in own(found) if part and not within(part, GROUND)} == set()
    assert HEAVY.isdisjoint(part.partition(".")[0] for part in found)


def test_the_order_names_every_package():
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages | MODULES == set(ORDER)
    assert set(APART) <= set(ORDER)


@pytest.mark.parametrize("package", ORDER)
def test_packages_import_only_inward(package):
    inward = APART.get(package, set(ORDER[: ORDER.index(package)]))
    assert inward <= set(ORDER[: ORDER.index(package)])
    allowed = {package, *GROUND, *inward}
    assert files(package)
    outward = {
        f"{path.relative_to(SOURCE)} -> {name}"
        for path in files(package)
        for name in own(imports(path))
        if name and not within(name, allowed)
    }
    assert outward == set()


@pytest.mark.parametrize("package", INSIDE)
def test_sub_packages_import_only_inward(package):
    around = package.partition(".")[0]
    outward = {
        f"{path.relative_to(SOURCE)} -> {name}"
        for path in files(package.replace(".", "/"))
        for name in own(imports(path))
        if within(name, {around}) and not within(name, {package, *INSIDE[package]})
    }
    assert outward == set()


def folders():
    return sorted({path.parent for path in SOURCE.rglob("__init__.py")} - {SOURCE})


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: str(folder.relative_to(SOURCE)))
def test_no_circle_leads_through_a_sub_package(folder):
    """Of what a package holds, files and sub-packages, a sub-package never reaches itself again."""
    package = ".".join(folder.relative_to(SOURCE).parts)
    reached: dict[str, set[str]] = {}
    for path in folder.rglob("*.py"):
        here = path.relative_to(folder).parts[0].removesuffix(".py")
        inside = {
            name[len(package) + 1 :].split(".")[0] for name in own(imports(path)) if within(name, {package})
        }
        reached.setdefault(here, set()).update(inside - {here, "", "__init__"})
    for _ in reached:
        for here in reached:
            reached[here] |= set().union(*(reached.get(there, set()) for there in reached[here]))
    circles = {here for here in reached if here in reached[here] and (folder / here).is_dir()}
    assert circles == set()


def test_the_method_is_pure():
    """Torch and NumPy alone: no model library, no hooks of an engine; numba only where a kernel is compiled."""
    foreign = {"transformers", "tokenizers", "PIL", "typer", "rich", "tqdm"}
    for path in files("method"):
        assert foreign.isdisjoint(name.partition(".")[0] for name in imports(path)), path
        assert "register_forward" not in path.read_text(encoding="utf-8"), path


def test_the_scorers_need_no_model():
    for path in files("lab/tasks"):
        found = imports(path)
        assert HEAVY.isdisjoint(part.partition(".")[0] for part in found), path
        assert not any(within(part, {"families", "engines"}) for part in own(found)), path
    for path in files("lab/runs"):  # what needs a model is imported when it runs
        assert HEAVY.isdisjoint(part.partition(".")[0] for part in top_level(path)), path


def test_nothing_imports_the_command_line():
    for path in sorted(SOURCE.rglob("*.py")):
        if path.relative_to(SOURCE).parts[0] in ("cli", "__main__.py"):
            continue
        assert not any(within(name, {"cli"}) for name in own(imports(path))), path


def test_no_pickle_anywhere():
    foreign = SOURCE / "lab" / "tasks" / "nltk_data.py"  # reads NLTK's old data, plain values only
    for path in sorted(set(SOURCE.rglob("*.py")) - {foreign}):
        names = {name.partition(".")[0] for name in imports(path)}
        assert names.isdisjoint({"pickle", "shelve", "dill", "joblib"}), path
