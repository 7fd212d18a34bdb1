"""The error tree: every message says what was seen, every hint what to do."""

from __future__ import annotations

import inspect

import pytest

from reweigh import errors
from reweigh.errors import InputError, MissingExtraError, ReweighError, UnknownNameError


def test_every_error_is_in_the_tree_and_in_its_picture():
    classes = [
        item for _, item in inspect.getmembers(errors, inspect.isclass) if item.__module__ == errors.__name__
    ]
    assert len(classes) > 8
    for item in classes:
        assert issubclass(item, ReweighError)
        assert item.__name__ in (errors.__doc__ or "")


def test_a_hint_has_its_own_line():
    error = InputError("beta is -1", hint="give 0 or more")
    assert str(error) == "beta is -1\n  hint: give 0 or more"
    assert (error.message, error.hint) == ("beta is -1", "give 0 or more")
    assert str(InputError("alone")) == "alone"


def test_errors_are_also_what_python_would_raise():
    assert issubclass(InputError, ValueError)
    assert issubclass(UnknownNameError, KeyError)
    assert issubclass(MissingExtraError, ImportError)


def test_an_unknown_name_suggests_the_nearest():
    message = str(UnknownNameError("decoder", "rewiegh", ["reweigh", "vcd", "opera"]))
    assert "'rewiegh'" in message
    assert "did you mean reweigh?" in message
    assert "opera, reweigh, vcd" in message


def test_an_unknown_name_in_an_empty_registry():
    message = str(UnknownNameError("decoder", "x", []))
    assert "did you mean" not in message
    assert "none" in message


def test_a_missing_extra_says_what_to_install():
    with pytest.raises(ImportError, match=r"\[plot\]"):
        raise MissingExtraError("plots", "plot", "matplotlib")
