"""The public face: names that exist, are sorted, and cost nothing until they are used."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import pytest

import reweigh


def fresh(code: str) -> str:
    """Standard output of some code in a new interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_public_names_are_exactly_these():
    assert reweigh.__all__ == sorted(reweigh.__all__)
    assert dir(reweigh) == reweigh.__all__
    assert reweigh.__all__ == [
        "Evidence",
        "ReferenceTable",
        "ReweighError",
        "Trace",
        "__version__",
        "attach",
        "calibrate",
        "check",
        "decoder",
        "load",
        "measure",
        "read",
    ]


@pytest.mark.parametrize("name", [name for name in reweigh.__all__ if name != "__version__"])
def test_every_public_name_can_be_used(name):
    assert callable(getattr(reweigh, name))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="atach"):
        reweigh.atach  # noqa: B018


def test_version_is_the_installed_one():
    from importlib.metadata import version

    assert version("reweigh") == reweigh.__version__


def test_import_is_light():
    loaded = json.loads(fresh("import reweigh, sys, json; print(json.dumps(sorted(sys.modules)))"))
    heavy = {
        "torch",
        "transformers",
        "numpy",
        "PIL",
        "safetensors",
        "huggingface_hub",
        "typer",
        "rich",
        "tqdm",
    }
    assert heavy.isdisjoint(loaded)
    ours = [name for name in loaded if name.partition(".")[0] == "reweigh"]
    assert ours == ["reweigh"]


def test_the_error_tree_and_the_table_need_no_torch():
    code = "import reweigh, sys; reweigh.ReweighError; reweigh.ReferenceTable; print('torch' in sys.modules)"
    assert fresh(code) == "False\n"


def test_the_command_line_starts_without_torch():
    code = (
        "import sys\nsys.argv = ['reweigh', '--version']\nfrom reweigh.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as done:\n    print(done.code, 'torch' in sys.modules)"
    )
    assert fresh(code) == f"reweigh {reweigh.__version__}\n0 False\n"


def test_measure_is_a_plain_function_with_a_signature():
    parameters = list(inspect.signature(reweigh.measure).parameters)
    assert parameters[:3] == ["model", "inputs", "layers"]


def test_versions_name_what_the_numbers_depend_on():
    from reweigh.provenance import versions

    found = versions()
    assert found["reweigh"] == reweigh.__version__
    assert {"python", "torch", "transformers", "numpy"} <= found.keys()


def test_progress_yields_everything_and_writes_to_stderr(capsys):
    from reweigh.progress import bar, progress

    assert list(progress([1, 2, 3], "counting", show=True)) == [1, 2, 3]
    with bar("working", total=4, done=1, unit="image", show=True) as shown:
        shown.update(3)
    out, err = capsys.readouterr()
    assert out == ""
    assert "counting" in err
    assert "4/4" in err
    list(progress([1], "silent", show=False))
    assert "silent" not in capsys.readouterr().err
