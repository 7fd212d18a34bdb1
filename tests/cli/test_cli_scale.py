"""``reweigh scale``: rates measured here, costs of every size, and the simulation beside them."""

from __future__ import annotations


def test_costs_and_simulations_are_printed(cli):
    given = ["scale", "--scenes", "1", "--image-seconds", "0.5", "--batch-size", "4"]
    page = cli(*given, "--json").json
    assert page["rates"]["image_seconds"] == 0.5
    assert min(page["rates"].values()) > 0
    costs = {(one["images"], one["gpus"]): one for one in page["costs"]}
    assert costs[10**4, 1]["seconds"] > 5000 > costs[10**4, 100]["seconds"]
    assert costs[10**4, 1000]["limit"] == "too few shards"
    for one in page["simulated"]:
        assert 0.5 < one["model"] / one["seconds"] < 2
    assert "0.5 s for an image on one worker (as given)" in cli(*given).out
