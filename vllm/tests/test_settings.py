"""Settings of the vLLM engine, and what a request may ask for."""

from __future__ import annotations

import pytest

from reweigh.errors import InputError, UnknownNameError
from reweigh_vllm.settings import (
    Settings,
    asked_beta,
    asks_for_evidence,
    check_misspelled,
    settings_in,
)

SETTINGS = settings_in({"reweigh": {"table": "t", "beta": 1.5}})


def test_nothing_is_configured_without_a_section():
    assert settings_in({}) is None
    assert settings_in({"other": 1}) is None
    assert settings_in(None) is None
    assert settings_in({"weights": {}, "lora": {}, "eigh": 1}) is None


@pytest.mark.parametrize("name", ["rewiegh", "reweight", "Reweigh", "re-weigh", "reweigh "])
def test_a_section_that_is_all_but_called_reweigh_is_not_passed_over(name, caplog):
    with pytest.raises(InputError, match=name) as caught:
        check_misspelled({name: {"table": "t"}})
    assert '"reweigh"' in caught.value.hint
    check_misspelled({name: {"table": "t", "alpha": 1}, "other": {"table": "t"}})  # somebody else's
    assert name in caplog.text
    assert "nothing is edited" in caplog.text


def test_a_section_is_read():
    found = settings_in({"reweigh": {"table": "t", "prefix_cache": "recall", "memory_mb": 8}})
    assert found == Settings(table="t", prefix_cache="recall", memory_mb=8)
    assert found.measures_all
    assert not SETTINGS.measures_all


@pytest.mark.parametrize(
    ("section", "word"),
    [
        ("t", "mapping"),
        ({}, "table"),
        ({"table": "t", "beta": -1}, "beta"),
        ({"table": "t", "prefix_cache": "always"}, "prefix_cache"),
        ({"table": "t", "unedited": "ignore"}, "unedited"),
        ({"table": "t", "enabled": "yes"}, "enabled"),
        ({"table": "t", "memory_mb": -1}, "memory_mb"),
        ({"table": "t", "memory_mb": 1.5}, "memory_mb"),
        ({"table": 5}, "table"),
        ({"table": "t", "layer": "2"}, "layer"),
        ({"table": "t", "layer": 2.0}, "layer"),
        ({"table": "t", "layer": True}, "layer"),
        (None, "mapping"),
        ({"table": "t", "observe": [1]}, "observe"),
        ({"observe": 2}, "observe"),
        ({"observe": ["2"]}, "observe"),
        ({"table": "t", "kernel": "foo"}, "kernel"),
        ({"table": "t", "sha256": 1}, "sha256"),
        ({"table": "t", "tables": {"a": "u"}}, "tables"),
    ],
)
def test_wrong_settings_are_refused_by_name(section, word):
    with pytest.raises(InputError, match=word):
        settings_in({"reweigh": section})


def test_an_unknown_setting_is_named_with_its_neighbor():
    with pytest.raises(UnknownNameError, match="prefix_cache"):
        settings_in({"reweigh": {"table": "t", "prefix_cash": "exact"}})


@pytest.mark.parametrize(
    ("asked", "beta"),
    [
        ({}, 1.5),
        ({"reweigh": "off"}, 0.0),
        ({"reweigh": False, "reweigh_beta": 2.0}, 0.0),
        ({"reweigh": 0}, 0.0),
        ({"reweigh": "on"}, 1.5),
        ({"reweigh_beta": 0.7}, 0.7),
        ({"reweigh_beta": "0.7"}, 0.7),
        ({"reweigh_beta": 0}, 0.0),
    ],
)
def test_the_beta_of_a_request(asked, beta):
    assert asked_beta(asked, SETTINGS, 1.5) == beta


def test_requests_opt_in_where_edits_are_off_by_default():
    quiet = settings_in({"reweigh": {"table": "t", "enabled": False}})
    assert asked_beta({}, quiet, 1.5) == 0.0
    assert asked_beta({"reweigh": "on"}, quiet, 1.5) == 1.5
    assert asked_beta({"reweigh_beta": 0.5}, quiet, 1.5) == 0.5


@pytest.mark.parametrize(
    "asked",
    [
        {"reweigh": "maybe"},
        *(
            {"reweigh_beta": beta}
            for beta in ("much", -1, float("nan"), "inf", 1e39, "1e39", [1.0], True, "1_0", " 1", "0x1")
        ),
    ],
)
def test_a_request_that_asks_for_nonsense_is_refused(asked):
    with pytest.raises(InputError):
        asked_beta(asked, SETTINGS, 1.5)


def test_a_request_asks_for_the_evidence_of_its_tokens():
    assert [asks_for_evidence({"reweigh_evidence": value}) for value in (True, "on", 0, "false", None)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert not asks_for_evidence({})


@pytest.mark.parametrize(
    "name", ["reweigh_bta", "reweigh.beta", "reweigh_layer", "reweigh_table", "Reweigh", "rewiegh_beta"]
)
def test_an_argument_that_is_not_known_is_refused(name):
    with pytest.raises(UnknownNameError, match="argument"):
        asked_beta({name: 1.0}, SETTINGS, 1.5)
    assert asked_beta({"other": 1.0, "beta": 2.0}, SETTINGS, 1.5) == 1.5
