"""Calibrations that keep sketches: added up while they run, stopped and gone on with, merged, and refused when damaged."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from reweigh.calibration import sums
from reweigh.calibration.complete import complete, sketching
from reweigh.calibration.corpus import Corpus, CorpusImage
from reweigh.calibration.result import MANIFEST, SKETCHES, Calibration, merge_calibrations
from reweigh.calibration.resume import WORK
from reweigh.errors import ArtifactError, CalibrationError, MismatchError, UnsupportedError
from reweigh.files.seals import read_sealed, read_sealed_tensors, write_sealed, write_sealed_tensors
from reweigh.tables.observations import ImageObservations
from reweigh.tables.sketches import sketch

LAYERS = (1, 3)
MADE_WITH = {
    "identity": {"model_id": "me/model", "weights": {"w": "float32 2 AAAA"}},
    "layers": list(LAYERS),
    "dtype": "float32",
    "candidates": {"mass": 0.9, "least": 2, "most": 50},
    "batch_size": 2,
}
IMAGES = [CorpusImage(f"{number:03d}.png", "0" * 64, lambda: None) for number in range(45)]
UNREAD = {"007.png", "031.png"}


class Killed(BaseException):
    """As if the process had ended here."""


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """Three children for a node, so that a few batches make several levels."""
    monkeypatch.setattr(sums, "FAN", 3)


def show(image):
    dice = np.random.default_rng(int(image.name[:3]))
    token = np.flatnonzero(dice.random(8) < 0.8)
    values = dice.uniform(0.001, 0.5, (2, len(token))).astype(np.float32)
    return ImageObservations(image.key, token, dice.integers(1, 4, len(token)), values)


def observer(stop=None, before=lambda: None):
    """Observes batches, the last of them first, and dies after some."""

    def observe(batches):
        for done, (number, images) in enumerate(reversed(batches.items())):
            before()
            if done == stop:
                raise Killed
            rows = [show(image) for image in images if image.name not in UNREAD]
            skips = [{"key": i.key, "name": i.name, "reason": "cut"} for i in images if i.name in UNREAD]
            yield number, (rows, skips)

    return observe


def run(out=None, images=IMAGES, observe=None, bins=16, rule="count-5"):
    made_with = MADE_WITH | sketching(bins)
    corpus = Corpus(tuple(images))
    return complete(observe or observer(), corpus, made_with, rule=rule, out=out, show=False)


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums, "FAN", 3)
        return run(out), out


def test_sketches_of_a_run_are_those_of_its_observations(whole, tmp_path):
    exact = run(bins=None)
    made, out = whole
    assert made.observations.equals(sketch(exact.observations, most=16))
    assert sorted(tree(out)) == sorted(
        [
            MANIFEST,
            SKETCHES,
            *(f"layer-{i}/reference_table.{end}" for i in LAYERS for end in ("json", "safetensors")),
        ]
    )
    assert made.skipped == exact.skipped
    assert made.tables[3].made_with["sketch"]["bins"] == 16
    assert 0 < made.tables[3].made_with["sketch"]["rank_error"] < 0.5
    assert Calibration.load(out).equals(made)
    assert run().equals(made)  # without a folder


def test_with_bins_enough_every_table_is_that_of_the_observations(tmp_path):
    exact, made = run(bins=None, rule="stable"), run(bins=4096, rule="stable")
    for layer in LAYERS:
        told = exact.tables[layer].compare(made.tables[layer])
        assert (told["b0"][0], told["max_abs_log_ratio"]) == (told["b0"][1], 0.0)
        assert told["only_first"] == told["only_second"] == 0
        assert made.tables[layer].made_with["sketch"]["undecided"] == []


def test_stopped_after_any_batch_it_goes_on_and_ends_with_the_same_bytes(whole, tmp_path):
    for stop in itertools.cycle((4, 1, 7, 0)):
        try:
            run(tmp_path, observe=observer(stop))
            break
        except Killed:
            assert not (tmp_path / MANIFEST).exists()
    assert tree(tmp_path) == tree(whole[1])


@pytest.mark.parametrize("number", range(1, 10))
def test_killed_around_a_sum_it_goes_on_and_ends_with_the_same_bytes(whole, tmp_path, monkeypatch, number):
    """Before a sum is written, or after it and before all that it holds are gone."""
    left = [number]
    write = sums.write_sealed_tensors

    def dying(path, *rest):
        left[0] -= 1
        if not left[0] and number % 2:
            raise Killed
        write(path, *rest)
        if not left[0]:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(sums, "write_sealed_tensors", dying)
        with pytest.raises(Killed):
            run(tmp_path)
    run(tmp_path)
    assert tree(tmp_path) == tree(whole[1])


def test_few_files_are_there_at_any_time(tmp_path):
    most = []
    run(
        tmp_path,
        observe=observer(before=lambda: most.append(len(list((tmp_path / WORK).glob("*.safetensors"))))),
    )
    assert len(most) == 23
    assert max(most) <= 2 * 3 + 2  # two of each of three levels, and what was cut off at the end


def test_shards_merge_to_the_bytes_of_the_whole_in_any_order(whole, tmp_path):
    parts = [run(tmp_path / str(i), IMAGES[i::3]) for i in range(3)]
    for order in itertools.permutations(range(3)):
        merged = merge_calibrations(Calibration.load(tmp_path / str(i)) for i in order)
        assert merged.equals(whole[0])
        merged.save(tmp_path / "merged")
        assert tree(tmp_path / "merged") == tree(whole[1])
    assert merge_calibrations([merge_calibrations(parts[1:]), parts[0]]).equals(whole[0])


def test_what_does_not_go_together_is_not_merged():
    made = run(images=IMAGES[:10])
    for other, message in (
        (
            run(images=IMAGES[10:], bins=None),
            "--sketch 16|without --sketch",
        ),
        (
            run(images=IMAGES[10:], bins=32),
            "--sketch 32",
        ),
        (run(images=IMAGES[9:]), "two shards"),
    ):
        for pair in ([made, other], [other, made]):
            with pytest.raises(MismatchError, match=message):
                merge_calibrations(pair)


def test_a_folder_of_the_other_kind_is_refused(whole, tmp_path):
    with pytest.raises(MismatchError, match="--sketch 16"):
        run(whole[1], bins=None)
    with pytest.raises(MismatchError, match="--sketch 32"):
        run(whole[1], bins=32)
    with pytest.raises(MismatchError, match="corpus"):
        run(whole[1], IMAGES[:-1])
    run(tmp_path, bins=None)
    with pytest.raises(MismatchError, match="--sketch 16"):
        run(tmp_path)


def test_images_are_not_told_apart(whole):
    with pytest.raises(UnsupportedError, match="apart"):
        whole[0].exact()


def test_of_images_that_cannot_be_read_nothing_is_made(tmp_path):
    with pytest.raises(CalibrationError, match="2 images"):
        run(tmp_path, [image for image in IMAGES if image.name in UNREAD])


@pytest.fixture
def stopped(tmp_path):
    """A run that was stopped when it had a sum."""
    with pytest.raises(Killed):
        run(tmp_path, observe=observer(12))
    return sorted((tmp_path / WORK).glob("sum-*"))[0]


def test_every_flipped_byte_of_a_sum_is_noticed(stopped, tmp_path):
    data = stopped.read_bytes()
    for at in range(8, len(data), len(data) // 23):
        stopped.write_bytes(data[:at] + bytes([data[at] ^ 64]) + data[at + 1 :])
        with pytest.raises(ArtifactError, match=stopped.name) as caught:
            run(tmp_path)
        assert "again" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays, page: page.update(job="another"), "calibration"),
        (lambda arrays, page: page.update(number=99), "calibration"),
        (lambda arrays, page: page.pop("skipped"), "skipped"),
        (lambda arrays, page: arrays.update(images=arrays["images"][1:]), "images"),
        (lambda arrays, page: arrays.pop("edge"), "edge"),
        (lambda arrays, page: arrays.update(count=arrays["count"] * 0), "positive"),
    ],
)
def test_a_sum_that_cannot_be_right_is_refused_although_its_seal_is(stopped, tmp_path, change, message):
    arrays, page = read_sealed_tensors(stopped)
    arrays = dict(arrays)
    change(arrays, page)
    write_sealed_tensors(stopped, arrays, page)
    with pytest.raises(ArtifactError, match=message):
        run(tmp_path)


def test_a_removed_sum_is_observed_again(whole, stopped, tmp_path):
    stopped.unlink()
    run(tmp_path)
    assert tree(tmp_path) == tree(whole[1])


def test_a_damaged_file_of_sketches_is_refused(tmp_path):
    run(tmp_path)
    path = tmp_path / SKETCHES
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ArtifactError, match="cut"):
        Calibration.load(tmp_path)
    path.unlink()
    with pytest.raises(ArtifactError, match=r"sketches\.safetensors"):
        Calibration.load(tmp_path)
    path.write_bytes(data)
    page = read_sealed(tmp_path / MANIFEST)
    write_sealed(tmp_path / MANIFEST, {**page, "images": 12})
    with pytest.raises(ArtifactError, match="43 images"):
        Calibration.load(tmp_path)
