"""A study corpus: its numbers against the twin's, its bytes after a kill, and what is refused."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

import twin
from reweigh.errors import ArtifactError, InputError, MismatchError
from reweigh.families.prompts import build_inputs
from reweigh.files.artifacts import sha256_file
from reweigh.files.seals import read_sealed, read_sealed_tensors, write_sealed, write_sealed_tensors
from reweigh.lab.paper.corpus import make, store
from reweigh.lab.paper.corpus.make import ImageSet
from reweigh.lab.paper.corpus.reading import EVIDENCE
from reweigh.lab.paper.corpus.store import StudyCorpus
from reweigh.method.readouts import READOUTS

SEED = 11


def inputs_of(passing, number):
    """One row alone; a batch's left padding changes rounding only."""
    picture = passing.images.images.images[number].read()
    return build_inputs(passing.model, passing.processor, [picture], [passing.images.prompt])


def twin_evidence(name, logits, number):
    z = logits.double().numpy()
    sigma = z.std(axis=1)
    if name == "prob-equalized":
        z, name = z * (np.median(sigma) / sigma)[:, None], "prob"
    if name == "logprob-rescaled":
        drawn = np.random.default_rng([SEED, number]).permutation(len(sigma))
        z, name = z * (sigma[drawn] / sigma)[:, None], "logprob"
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    if name.startswith("dmrr"):
        ranks = 1 + (z[:, None, :] > z[:, :, None]).sum(axis=2)
        return (1 / ranks).mean(axis=0)
    if name in ("prob", "logprob"):
        mean = p.mean(axis=0)
        return mean if name == "prob" else np.log(np.maximum(mean, 1e-8))
    values = z if name == "zscore" else p
    centered = values - values.mean(axis=1, keepdims=True)
    return (centered / values.std(axis=1, keepdims=True)).mean(axis=0)


def test_evidence_and_positions_are_those_of_the_definitions(passing, corpus):
    for image in list(corpus)[:2]:
        [logits] = twin.lens(passing.model, inputs_of(passing, image.number), passing.table.layer)
        assert set(image.evidence) == set(EVIDENCE) > set(READOUTS)
        for name in EVIDENCE:
            expected = twin_evidence(name, logits, image.number)
            np.testing.assert_allclose(image.evidence[name], expected, rtol=2e-3, atol=2e-4, err_msg=name)
        np.testing.assert_allclose(image.original.scale, logits.double().numpy().std(axis=1), rtol=1e-4)
        np.testing.assert_allclose(image.equalized.scale, np.median(image.original.scale), rtol=1e-9)


def test_rescaling_leaves_ranks_bit_identical_and_moves_probability(corpus):
    for image in corpus:
        assert np.array_equal(image.evidence["dmrr"], image.evidence["dmrr-rescaled"])
        assert not np.array_equal(image.evidence["logprob"], image.evidence["logprob-rescaled"])


def test_the_trajectory_is_the_base_models(passing, corpus):
    image = next(iter(corpus))
    inputs = inputs_of(passing, image.number)
    for step in range(len(image)):
        with torch.no_grad():
            raw = passing.model(**inputs, use_cache=False).logits[0, -1].double()
        assert image.tokens[step] == int(raw.argmax())
        assert image.probability[step] == pytest.approx(float(raw.softmax(0).max()), rel=1e-3)
        ids, logits = image.step(step)
        assert ids[0] == int(raw.argmax())
        np.testing.assert_allclose(logits, raw[torch.from_numpy(ids)].numpy(), rtol=1e-3, atol=1e-3)
        mass = raw.softmax(0)[torch.from_numpy(ids)]
        assert 2 <= len(ids) <= 50
        assert float(mass.sum()) >= 0.9 or len(ids) == 50
        token = torch.tensor([[int(image.tokens[step])]])
        inputs["input_ids"] = torch.cat([inputs["input_ids"], token], dim=1)
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    assert [ids.tolist() for ids, _ in image.steps()] == [
        image.step(s)[0].tolist() for s in range(len(image))
    ]


def test_the_corpus_says_what_calibration_would_observe(passing, corpus):
    import reweigh

    named = [(image.name, image.read()) for image in passing.images.images.images]
    done = reweigh.calibrate(
        passing.model, passing.processor, named, layers=[2], max_new_tokens=7, batch_size=2, show=False
    )
    found = corpus.observations()
    assert np.array_equal(found.token, done.observations.token)
    assert np.array_equal(found.count, done.observations.count)
    assert np.array_equal(found.values, done.observations.values)
    matched = corpus.observations("zscore")
    assert np.array_equal(matched.ranks, found.values)


def tree(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_pass_that_was_stopped_resumes_and_ends_with_the_same_bytes(passing, tmp_path, monkeypatch):
    monkeypatch.setattr(make, "SHARD", 2)
    whole = passing.make(tmp_path / "whole")
    assert len(whole.shards) == 3
    assert [image.number for image in whole] == list(range(5))
    writes = []

    def dying(path, arrays, page):
        writes.append(path.name)
        if len(writes) == 2:
            raise KeyboardInterrupt
        write_sealed_tensors(path, arrays, page)

    monkeypatch.setattr(store, "write_sealed_tensors", dying)
    with pytest.raises(KeyboardInterrupt):
        passing.make(tmp_path / "stopped")
    with pytest.raises(ArtifactError, match="finished"):
        StudyCorpus.open(tmp_path / "stopped")
    passing.make(tmp_path / "stopped")
    assert writes == [f"shard-{n:05d}.safetensors" for n in (0, 1, 1, 2)]
    assert tree(tmp_path / "stopped") == tree(tmp_path / "whole")
    passing.make(tmp_path / "stopped")  # finished: opened, nothing is written
    assert len(writes) == 4


def test_one_shard_is_in_memory_at_a_time(passing, tmp_path, monkeypatch):
    monkeypatch.setattr(make, "SHARD", 2)
    corpus = passing.make(tmp_path / "corpus")
    read = []
    monkeypatch.setattr(
        store, "read_sealed_tensors", lambda path: (read.append(path), read_sealed_tensors(path))[1]
    )
    images = iter(corpus)
    next(images)
    assert len(read) == 1
    assert len(list(images)) == 4
    assert len(read) == 3


def test_other_settings_and_altered_files_are_refused(passing, corpus, tmp_path):
    with pytest.raises(MismatchError, match="seed"):
        passing.make(corpus.folder, seed=12)
    passing.make(tmp_path / "own")
    shard = tmp_path / "own" / "shard-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(bytes(data))
    with pytest.raises(ArtifactError, match="manifest"):
        list(StudyCorpus.open(tmp_path / "own"))
    (tmp_path / "own" / "corpus.json").unlink()
    with pytest.raises(ArtifactError, match="altered"):  # an unfinished pass does not build on it either
        passing.make(tmp_path / "own")


def test_a_set_is_asked_one_question(passing):
    from reweigh.lab.runs.task import Task
    from reweigh.lab.tasks.base import Record

    records = [Record(id=n, image=f"{n}.png", prompt=f"{n}?", max_new_tokens=5) for n in range(2)]
    with pytest.raises(InputError, match="2 images"):
        ImageSet.of_task(Task(None, records, None, {"name": "pope"}, {}))


def resealed(corpus, folder, change):
    """The corpus with something changed under right hashes."""
    own = shutil.copytree(corpus.folder, folder)
    page = read_sealed(own / "corpus.json")
    arrays, about = read_sealed_tensors(own / "shard-00000.safetensors")
    change(page, arrays, about)
    write_sealed_tensors(own / "shard-00000.safetensors", arrays, about)
    page["shards"][0]["sha256"] = sha256_file(own / "shard-00000.safetensors")
    write_sealed(own / "corpus.json", page)
    return own


def spoil(name, index, value):
    return lambda page, arrays, about: arrays[name].__setitem__(index, value)


IMPOSSIBLE = {
    "layer 99": lambda page, arrays, about: page["record"].update(layer=99),
    "no images": lambda page, arrays, about: page.update(shards=[], skipped=[]) or page["shards"].append({}),
    "0 of 5 images": lambda page, arrays, about: page["shards"][0].update(images=0),
    "an image less": lambda page, arrays, about: about["images"].pop(),
    "NaN evidence": spoil("0/evidence", (0, 0), np.nan),
    "evidence of 5": spoil("0/evidence", (0, 0), 5.0),
    "NaN logits": spoil("0/logits", 0, np.nan),
    "a probability of 2": spoil("0/probability", 0, 2.0),
    "a token beyond": spoil("0/tokens", 0, 10**6),
    "candidates of no step": spoil("0/first", -1, 10**6),
    "without its arrays": lambda page, arrays, about: arrays.pop("0/tokens"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_corpora_are_refused_under_a_right_hash(corpus, tmp_path, name):
    whole = resealed(corpus, tmp_path / "whole", lambda *given: None)
    assert len(list(StudyCorpus.open(whole))) == len(corpus)
    spoilt = resealed(corpus, tmp_path / "spoilt", IMPOSSIBLE[name])
    with pytest.raises(ArtifactError, match="spoilt"):
        list(StudyCorpus.open(spoilt))


def test_an_image_is_found_by_its_number(corpus):
    every = list(corpus)
    for number in (4, 0, 3, 3):
        assert corpus.image(number).text == every[number].text
        assert corpus.image(number).number == number
    with pytest.raises(ArtifactError, match="99"):
        corpus.image(99)
