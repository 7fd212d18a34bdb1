"""Steering vectors of the embedded model: states of its own tokens, labels of its own mentions; the command resumes."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from reweigh.errors import ArtifactError, InputError, MismatchError
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.lab.arms.steer import answer_pair, make, steer, token_labels
from reweigh.lab.tasks.world import World
from reweigh.rivals.tools.vectors import SteeringVectors
from reweigh.world.vocabulary import mentions


def test_tokens_take_the_label_of_the_mention_they_belong_to():
    spans = [{"start": 2, "end": 5, "hallucinated": True}, {"start": 9, "end": 12, "hallucinated": False}]
    assert token_labels([(0, 1), (1, 4), (4, 6), (6, 9), (9, 12)], spans) == [None, True, True, None, False]


def test_an_answer_is_paired_with_itself_without_the_sentences_that_name_absent_things():
    answer = "A kitchen with a cat. There is a dog. A cup!"
    mentions = [
        {"start": 17, "end": 20, "hallucinated": False},
        {"start": 33, "end": 36, "hallucinated": True},
    ]
    assert answer_pair(answer, mentions) == ("A kitchen with a cat. A cup!", answer)
    assert answer_pair(answer, mentions[:1]) is None  # nothing is wrong
    assert answer_pair("There is a dog.", [{"start": 11, "end": 14, "hallucinated": True}]) is None


@pytest.mark.slow
def test_directions_come_from_pairs_of_answers(steered):
    model, processor, runs, out, _ = steered
    found, differences = SteeringVectors.load(out), []
    for scene in runs.task.bench.scenes():
        inputs = build_inputs(model, processor, [scene.image()], [DESCRIBE])
        ids = model.generate(**inputs, max_new_tokens=128, do_sample=False)[0, inputs["input_ids"].shape[1] :]
        text = processor.decode(ids, skip_special_tokens=True).strip()
        wrong = [
            {"start": start, "end": end, "hallucinated": name not in scene.objects}
            for start, end, _, name in mentions(text)
        ]
        if (pair := answer_pair(text, wrong)) is None:
            continue
        means = []
        for one in pair:
            said = torch.tensor([processor.tokenizer(one, add_special_tokens=False)["input_ids"]])
            longer = {**inputs, "input_ids": torch.cat([inputs["input_ids"], said], dim=1)}
            longer["attention_mask"] = torch.ones_like(longer["input_ids"])
            with torch.no_grad():
                states = model(**longer, output_hidden_states=True).hidden_states
            means.append(states[3][0].mean(dim=0).double().numpy())
        differences.append(means[0] - means[1])
    assert found.pairs == len(differences) >= 2
    best = np.linalg.svd(np.array(differences))[2][0]
    assert abs(float(best @ found.subspace[2, 0])) == pytest.approx(1, abs=1e-3)


@pytest.fixture(scope="module")
def steered(tmp_path_factory):
    from reweigh.families.load import load
    from reweigh.lab.runs.task import Runs, open_task
    from reweigh.world import path

    model, processor = load(path(), device="cpu")
    out = tmp_path_factory.mktemp("steer")
    options = {**World.tuning_options, "scenes": 12}
    task = open_task("world", None, options=options, drawings=out / "pictures")
    runs = Runs(task, {"id": "world"}, batch_size=6)
    return model, processor, runs, out, steer(model, processor, runs, out)


@pytest.mark.slow
def test_vectors_equal_the_means_over_generated_tokens(steered):
    model, processor, runs, out, made = steered
    states = {False: [], True: []}
    for scene in runs.task.bench.scenes():
        inputs = build_inputs(model, processor, [scene.image()], [DESCRIBE])
        output = model.generate(
            **inputs,
            max_new_tokens=128,
            do_sample=False,
            output_hidden_states=True,
            return_dict_in_generate=True,
        )
        ids = output.sequences[0, inputs["input_ids"].shape[1] :].tolist()
        text = processor.decode(ids, skip_special_tokens=True)
        found = mentions(text)
        for step in range(1, len(output.hidden_states)):  # what step shows is the token before it
            before, after = (
                len(processor.decode(ids[:n], skip_special_tokens=True)) for n in (step - 1, step)
            )
            name = next((name for start, end, _, name in found if before < end and after > start), None)
            if name is not None:
                read = output.hidden_states[step]
                states[name not in scene.objects].append(torch.stack([read[2][0, -1]]).numpy())
    wanted = np.mean(states[False], axis=0, dtype=np.float64) - np.mean(
        states[True], axis=0, dtype=np.float64
    )
    assert (made.factual, made.hallucinated) == (len(states[False]), len(states[True]))
    np.testing.assert_allclose(made.vectors[1:2], wanted, atol=2e-3)
    assert SteeringVectors.load(out).fingerprint == made.fingerprint
    assert steer(model, processor, runs, out).fingerprint == made.fingerprint


def test_a_benchmark_without_mentions_is_refused():
    from reweigh.lab.arms.steer import _mentions

    with pytest.raises(InputError, match="mentions"):
        _mentions({}, "pope")


@pytest.mark.slow
def test_tokens_that_were_altered_make_no_vectors(steered, tmp_path):
    model, processor, runs, out, _ = steered
    copied = shutil.copytree(out, tmp_path / "copy")
    tokens = copied / "answers" / "rows.jsonl"
    text = tokens.read_text()
    digit = next(i for i, letter in enumerate(text) if letter.isdigit() and '"tokens"' in text[:i])
    tokens.write_text(text[:digit] + str((int(text[digit]) + 1) % 10) + text[digit + 1 :])
    with pytest.raises(ArtifactError, match="altered"):
        steer(model, processor, runs, copied)


@pytest.mark.slow
def test_vectors_are_made_once_and_those_of_other_settings_are_refused(steered, tmp_path, monkeypatch):
    model, processor, runs, out, _ = steered
    copied = shutil.copytree(out, tmp_path / "copy")
    make(model, processor, runs, copied)
    with monkeypatch.context() as patched:
        patched.delattr("reweigh.lab.arms.steer.steer")
        make(model, processor, runs, copied)
    with pytest.raises(MismatchError, match="max_new_tokens"):
        make(model, processor, replace(runs, task=runs.task.with_length(4)), copied)
