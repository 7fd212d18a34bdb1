"""`reweigh scale` as a user runs it: a table, and the same to a program."""

from __future__ import annotations

import pytest


@pytest.mark.slow
def test_costs_and_simulations_are_told_to_a_program_and_to_a_reader(cli):
    asked = ("scale", "--scenes", "2", "--image-seconds", "2", "--batch-size", "4")
    page = cli(*asked, "--json").json
    assert page["rates"]["image_seconds"] == 2
    assert all(rate > 0 for rate in page["rates"].values())
    assert [(one["images"], one["gpus"]) for one in page["costs"][:2]] == [(10**4, 1), (10**4, 10)]
    assert page["costs"][-1]["images"] == 10**8
    alone = page["costs"][0]
    assert alone["limit"] == "GPUs"
    assert alone["seconds"] > 2 * 10**4  # no less than the work itself
    assert page["costs"][-1]["limit"] == "driver's memory"
    for one in page["sketches"]:  # bounded by the vocabulary, but for sixteen bytes an image
        small, large = one["sketches"]["32000"], one["sketches"]["152000"]
        assert small <= 32_000 * (1024 * 12 + 17) + 2**16 * 12 + 16 * one["images"]
        assert small <= large <= one["observations"] * 2 + 16 * one["images"]
    for one in page["simulated"]:
        assert 0.5 < one["model"] / one["seconds"] < 2, one
    told = cli(*asked).out
    assert "2 s for an image on one worker (as given)" in told
    tables = [page[name] for name in ("costs", "sketches", "simulated")]
    assert len(told.splitlines()) == 1 + sum(2 + len(rows) for rows in tables)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--stragglers", "0.9", "the share of stragglers is 0.9"),
        ("--failures", "-0.1", "the share of failures is -0.1"),
        ("--restart", "-1", "the time of a restart is -1"),
        ("--image-seconds", "0", "an image cannot take 0 seconds"),
        ("--image-seconds", "-1", "an image cannot take -1 seconds"),
        ("--image-seconds", "nan", "an image cannot take nan seconds"),
        ("--image-seconds", "inf", "an image cannot take inf seconds"),
    ],
)
def test_an_impossible_cluster_is_refused_before_anything_is_measured(cli, monkeypatch, option, value, said):
    monkeypatch.setattr("reweigh.cli.scale._measure", lambda scenes: pytest.fail("it was measured"))
    done = cli("scale", option, value)
    assert done.code == 1
    assert f"{said}\n" in done.err
    assert "Conditions(" not in done.err
