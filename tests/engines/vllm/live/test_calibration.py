"""A calibration inside vLLM sees what the transformers engine sees."""

from __future__ import annotations

import numpy as np
import pytest
from harness import V2, Reference, reference_folder, stopped

from reweigh.calibration.result import Calibration
from reweigh.method.register.table import ReferenceTable

pytestmark = pytest.mark.skipif(V2, reason="forty steps on the interpreter; the processor is the same object")


def test_observations_are_the_transformers_engine_s(world: Reference, tmp_path):
    from reweigh.calibration.vllm import calibrate_in_vllm

    kept = Calibration.load(reference_folder("world") / "observed")
    options = {
        "enforce_eager": True,
        "distributed_executor_backend": "uni",
        "max_num_seqs": 4,
        "mm_processor_kwargs": {"use_fast": False},
    }
    with stopped():
        found = calibrate_in_vllm(
            str(world.checkpoint),
            [(f"{number}.png", picture) for number, picture in enumerate(world.pictures)],
            layers=kept.observations.layers,
            out=tmp_path / "out",
            max_new_tokens=40,
            rule="count-1",
            engine=options,
        )
    mine, theirs = found.observations, kept.observations
    assert mine.images == theirs.images
    assert np.array_equal(mine.token, theirs.token)
    assert np.array_equal(mine.count, theirs.count)
    # A rank moves by one where two of 864 logits differ in the last bit, which the two programs round differently.
    assert (mine.values != theirs.values).mean() < 0.01
    assert np.abs(mine.values - theirs.values).max() < 1e-5
    table = ReferenceTable.load(tmp_path / "out", layer=theirs.layers[-1])
    own = table.made_with["identity"]
    recorded = kept.made_with["identity"]
    assert own["weights"].keys() == recorded["weights"].keys()
    for part in ("architecture", "blocks", "vocab_size", "tokenizer", "images", "weights"):
        assert own[part] == recorded[part], part
