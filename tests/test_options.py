"""Options as text, and text fit for a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from reweigh.errors import InputError
from reweigh.options import parse_option, parse_options, typed_options
from reweigh.text import replace_surrogates


def test_values_are_json_where_they_can_be() -> None:
    given = ["scenes=300", "split=tuning", "scene-seed=1", "mixed=true", "names=[1, 2]", "file=a=b", "empty="]
    assert parse_options(given) == {
        "scenes": 300,
        "split": "tuning",
        "scene_seed": 1,
        "mixed": True,
        "names": [1, 2],
        "file": "a=b",
        "empty": "",
    }
    assert parse_options(["a=1", "a=2"]) == {"a": 2}


@pytest.mark.parametrize("text", ["scenes", "=3", ""])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"method\.option=value"):
        parse_option(text, "method.option=value")


KINDS = {"revision": str, "cache": Path, "workers": int, "timeout": float, "trust": bool}


def test_each_option_has_its_type() -> None:
    given = ["revision=1e5", "cache=7", "workers=2", "timeout=3", "trust=true"]
    expected = {"revision": "1e5", "cache": Path("7"), "workers": 2, "timeout": 3, "trust": True}
    assert typed_options(given, KINDS, "option") == expected


@pytest.mark.parametrize(
    "text", ["workers=2.5", "workers=true", "workers=two", "timeout=soon", "trust=1", "cash=x"]
)
def test_other_types_and_names_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"workers|timeout|trust|cache"):
        typed_options([text], KINDS, "option")


def test_half_a_surrogate_pair_is_replaced() -> None:
    assert replace_surrogates("a \ud83d dog é 🐶") == "a ? dog é 🐶"
