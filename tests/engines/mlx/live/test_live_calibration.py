"""Calibration with mlx-vlm: the observations of the transformers engine; the commands, and what they refuse."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import reweigh
from conftest import BETA, LAYER, QUESTION
from reweigh.calibration.result import merge_shards
from reweigh.cli.app import app
from reweigh.errors import InputError, UnsupportedError


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl", "world"])
def test_observations_are_those_of_transformers(engines, family):
    both = engines[family]
    shown = [(f"{number}", one) for number, one in enumerate(both.pictures)]
    options = {"layers": [LAYER, -1], "max_new_tokens": 20, "rule": "count-1", "show": False}
    theirs = reweigh.calibrate(both.model, both.processor, shown, **options)
    ours = reweigh.calibrate(*both.mlx, shown, **options)
    assert ours.about["engine"] == "mlx"
    for layer, table in theirs.tables.items():
        found = ours.tables[layer]
        assert np.array_equal(found.tokens, table.tokens)
        assert np.array_equal(found.counts, table.counts)
        np.testing.assert_allclose(found.references, table.references, rtol=0, atol=1e-4)
        assert found.b0 == pytest.approx(table.b0, abs=1e-4)


def test_a_table_of_mlx_serves_transformers(engines, tmp_path):
    both = engines["llava"]
    shown = [(f"{number}", one) for number, one in enumerate(both.pictures)]
    reweigh.calibrate(
        *both.mlx, shown, layers=[LAYER], max_new_tokens=20, rule="count-1", out=tmp_path, show=False
    )
    said = []
    for model, processor in (both.mlx, (both.model, both.processor)):
        rw = reweigh.attach(model, processor, table=tmp_path, beta=BETA)
        said.append(rw.answer(both.pictures[:1], [QUESTION], max_new_tokens=20))
    assert said[0] == said[1]


def test_shards_merge_to_the_whole(engines, tmp_path):
    both = engines["llava"]
    shown = [(f"{number}", one) for number, one in enumerate(both.pictures)]
    options = {"layers": [LAYER], "max_new_tokens": 8, "rule": "count-1", "show": False}
    whole = reweigh.calibrate(*both.mlx, shown, **options)
    parts = [tmp_path / f"{part}" for part in (2, 1)]
    for part in parts:
        reweigh.calibrate(*both.mlx, shown, shard=f"{part.name}/2", out=part, **options)
    assert (
        merge_shards(parts, tmp_path / "whole").tables[LAYER].fingerprint == whole.tables[LAYER].fingerprint
    )


def test_a_checkpoint_with_a_penalty_is_refused(engines):
    both = engines["llava"]
    file = both.folder / "generation_config.json"
    before = file.read_text()
    try:
        file.write_text(json.dumps({**json.loads(before), "repetition_penalty": 1.3}))
        with pytest.raises(UnsupportedError, match="repetition_penalty"):
            reweigh.calibrate(*both.mlx, both.pictures, layers=[LAYER], show=False)
    finally:
        file.write_text(before)


def test_the_doctor_says_where_tables_pass(engines):
    from reweigh.doctor.mlx import examine

    alike = examine((engines["llava"].model, engines["llava"].processor), engines["llava"].mlx)
    assert alike["shares_tables"]
    assert alike["lens"]["holds"]
    assert alike["logits"]["max_difference"] < 1e-3
    assert alike["differences"] == []
    for family, word in (("gemma3", "see each other"), ("internvl", "gelu_pytorch_tanh")):
        both = engines[family]
        apart = examine((both.model, both.processor), both.mlx)
        assert not apart["agrees"]
        assert any(word in one for one in apart["differences"])
        assert apart["lens"]["holds"]


def test_the_commands_take_the_engine(tmp_path):
    from reweigh.world.scenes import scenes

    for number, scene in enumerate(scenes("calibration", 2)):
        scene.image().save(tmp_path / f"{number}.png")
    options = ["--engine", "mlx", "--max-new-tokens", "12", "--rule", "count-1"]
    runner = CliRunner()
    made = runner.invoke(app, ["calibrate", "world", str(tmp_path), "-o", str(tmp_path / "table"), *options])
    assert made.exit_code == 0, made.output
    page = json.loads((tmp_path / "table" / "record.json").read_text())
    assert page["record"]["about"]["engine"] == "mlx"
    assert page["record"]["about"]["dtype"] == "float16"
    refused = runner.invoke(app, ["doctor", "world", "--engine", "mlx", "--model-option", "dtype=float32"])
    assert isinstance(refused.exception, InputError)
