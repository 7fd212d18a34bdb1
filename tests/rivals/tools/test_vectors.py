"""Steering vectors: the mean difference written out, files that verify themselves, refusals that name both sides."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from random_vectors import random_vectors

from reweigh.errors import ArtifactError, CalibrationError, InputError, MismatchError
from reweigh.files.paged import write_paged
from reweigh.rivals.tools.vectors import LabeledSums, SteeringVectors


class Known:
    """An identity that differs from any other name."""

    model_id = "mine"

    def missing(self, record):
        return [] if "model_id" in record else ["model_id"]

    def differences(self, record):
        return [] if record["model_id"] == "mine" else [f"name: table {record['model_id']}, model mine"]


def made(model="mine"):
    return random_vectors(2, 5, made_with={"identity": {"model_id": model}})


def test_vectors_are_the_difference_of_the_means():
    draw = np.random.default_rng(0)
    answers = [draw.normal(size=(4, 2, 3)).astype(np.float32) for _ in range(3)]
    labels = [[None, False, True, None], [False, False, True, True], [None] * 4]
    sums = LabeledSums(2, 3)
    for states, found in zip(answers, labels, strict=True):
        sums.add(states, found)
    pairs = [
        (s, label)
        for states, found in zip(answers, labels, strict=True)
        for s, label in zip(states, found, strict=True)
    ]
    factual = np.mean([s for s, label in pairs if label is False], axis=0, dtype=np.float64)
    wrong = np.mean([s for s, label in pairs if label is True], axis=0, dtype=np.float64)
    np.testing.assert_allclose(sums.vectors(), factual - wrong, rtol=1e-5, atol=1e-6)
    assert sums.counts.tolist() == [3, 3]


def test_both_labels_are_needed():
    sums = LabeledSums(1, 2)
    sums.add(np.ones((2, 1, 2), dtype=np.float32), [False, False])
    with pytest.raises(CalibrationError, match="2 factual"):
        sums.vectors()


def test_vectors_come_back_as_they_were(tmp_path):
    one = made()
    found = SteeringVectors.load(one.save_pretrained(tmp_path / "v"))
    assert found.fingerprint == one.fingerprint
    assert (found.factual, found.hallucinated, found.pairs) == (9, 9, 9)
    for name, array in one.arrays().items():
        np.testing.assert_array_equal(getattr(found, name), array)
    one.save_pretrained(tmp_path / "w")
    files = [SteeringVectors.file(tmp_path / name) for name in "vw"]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_numbers_that_this_version_does_not_know_are_left_out(tmp_path):
    one = made()
    write_paged(SteeringVectors.file(tmp_path), one.page(), one.arrays() | {"later": one.vectors})
    assert SteeringVectors.load(tmp_path).fingerprint == one.fingerprint


def test_altered_or_missing_files_are_refused(tmp_path):
    with pytest.raises(ArtifactError, match="reweigh compare"):
        SteeringVectors.load(tmp_path)
    folder = made().save_pretrained(tmp_path / "v")
    file = SteeringVectors.file(folder)
    data = file.read_bytes()
    for position in range(8, len(data), 41):
        file.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        with pytest.raises(ArtifactError):
            SteeringVectors.load(folder)
    page, arrays = made().page(), made().arrays()
    for wrong in ({**page, "schema": 2}, {**page, "factual": "9"}, {**page, "made_with": []}):
        write_paged(file, wrong, arrays)
        with pytest.raises(ArtifactError):
            SteeringVectors.load(folder)
    file.write_text("mine")
    with pytest.raises(InputError, match="not steering vectors"):
        made().save_pretrained(folder)
    for change in (
        {"vectors": made().vectors[:1]},
        {"direction": made().direction * np.float32("nan")},
        {"subspace": made().subspace.astype(np.float64)},
        {"factual": 0},
        {"pairs": 3},
    ):
        with pytest.raises(ArtifactError, match="usable"):
            dataclasses.replace(made(), **change).verify()


def test_another_models_vectors_are_refused_with_both_sides():
    made().check_pairing(Known())
    with pytest.raises(MismatchError, match="theirs"):
        made("theirs").check_pairing(Known())
    with pytest.raises(MismatchError, match="recorded"):
        random_vectors(2, 5).check_pairing(Known())
