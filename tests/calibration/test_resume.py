"""The parts of an unfinished calibration: sealed, bound to their job and batch, and the only files that are removed."""

from __future__ import annotations

import numpy as np
import pytest

from reweigh.calibration.corpus import CorpusImage
from reweigh.calibration.result import Calibration, tables_of
from reweigh.calibration.resume import WORK, Work
from reweigh.errors import ArtifactError, InputError, MismatchError
from reweigh.files.artifacts import LEFTOVER
from reweigh.files.seals import read_sealed_tensors, write_sealed_tensors
from reweigh.tables.observations import ImageObservations, collect

LAYERS = (1, 3)
IMAGES = [CorpusImage(name, "0" * 64, lambda: None) for name in ("a.png", "b.png", "c.png")]


def seen(image, value=0.25):
    values = np.full((len(LAYERS), 2), value, dtype=np.float32)
    return ImageObservations(image.key, np.array([3, 7]), np.array([1, 2]), values)


@pytest.fixture
def work(tmp_path):
    work = Work(tmp_path, {"rule": "stable", "corpus": "x"}, LAYERS)
    work.claim()
    skipped = [{"key": IMAGES[2].key, "name": "c.png", "reason": "cut"}]
    work.write_part(0, [seen(image) for image in IMAGES[:2]], skipped)
    return work


def rewrite(path, change_arrays=None, change_page=None):
    """Alter a part and seal it again, as a program that knows the format could."""
    arrays, page = read_sealed_tensors(path)
    arrays = {name: array.copy() for name, array in arrays.items()}
    (change_arrays or (lambda arrays: None))(arrays)
    (change_page or (lambda page: None))(page)
    write_sealed_tensors(path, arrays, page)


def test_a_part_comes_back(work):
    rows, skipped = work.read_part(0, IMAGES)
    assert [row.key for row in rows] == [image.key for image in IMAGES[:2]]
    assert [skip["name"] for skip in skipped] == ["c.png"]


def test_every_flipped_byte_of_a_part_is_noticed(work):
    path = work.part(0)
    data = path.read_bytes()
    for at in range(8, len(data), 3):
        path.write_bytes(data[:at] + bytes([data[at] ^ 64]) + data[at + 1 :])
        with pytest.raises(ArtifactError, match="part-000000"):
            work.read_part(0, IMAGES)


@pytest.mark.parametrize(
    ("arrays", "page", "message"),
    [
        (lambda arrays: arrays["values"].__setitem__((0, 0), 1e36), None, "outside"),
        (lambda arrays: arrays["values"].__setitem__((1, 1), 0.0), None, "outside"),
        (lambda arrays: arrays["values"].__setitem__((1, 1), np.nan), None, "evidence"),
        (lambda arrays: arrays["count"].__setitem__(0, 0), None, "positive"),
        (lambda arrays: arrays["token"].__setitem__(0, -1), None, "tokens"),
        (lambda arrays: arrays["token"].__setitem__(1, 3), None, "tokens"),
        (lambda arrays: arrays["image"].__setitem__(-1, 2), None, "image 3"),
        (lambda arrays: arrays.update(token=arrays["token"][:-1]), None, "lengths"),
        (lambda arrays: arrays.update(values=arrays["values"].astype(np.float64)), None, "types"),
        (lambda arrays: arrays.pop("count"), None, "count"),
        (None, lambda page: page.update(images=page["images"][::-1]), "images"),
        (None, lambda page: page.update(skipped=[]), "batch"),
        (None, lambda page: page.update(job="another"), "calibration"),
        (None, lambda page: page.update(number=1), "another batch"),
        (None, lambda page: page.pop("images"), "'images'"),
    ],
)
def test_a_part_that_cannot_be_right_is_refused_although_its_seal_is(work, arrays, page, message):
    rewrite(work.part(0), arrays, page)
    with pytest.raises(ArtifactError, match=message) as caught:
        work.read_part(0, IMAGES)
    assert "again" in caught.value.hint


def test_a_part_that_names_none_of_its_images_is_refused(tmp_path):
    work = Work(tmp_path, {"rule": "stable"}, LAYERS)
    work.claim()
    work.write_part(0, [], [])
    with pytest.raises(ArtifactError, match="images"):
        work.read_part(0, IMAGES)


def test_tidying_removes_what_carries_this_jobs_seal_and_nothing_else(work, tmp_path):
    other = Work(tmp_path / "elsewhere", {"rule": "count-5"}, LAYERS)
    other.claim()
    other.write_part(1, [seen(IMAGES[0])], [])
    kept = ["part-000009.safetensors", "part-mine.safetensors", "notes.txt", ".film.part"]
    for name in kept:
        (tmp_path / WORK / name).write_bytes(b"mine")
    other.part(1).replace(work.part(1))
    (tmp_path / WORK / f".part-000002.safetensors.0a1b2c3d{LEFTOVER}").write_bytes(b"half")
    work.tidy()
    assert sorted(path.name for path in (tmp_path / WORK).iterdir()) == sorted([*kept, work.part(1).name])


def test_a_folder_that_this_job_never_claimed_is_left_alone(work, tmp_path):
    stranger = Work(tmp_path, {"rule": "count-5"}, LAYERS)
    stranger.tidy()
    assert work.read_part(0, IMAGES)
    with pytest.raises(MismatchError, match="corpus"):
        stranger.claim()


@pytest.mark.parametrize("name", ["observations.safetensors", "layer-3/reference_table.json"])
def test_what_a_calibration_would_replace_stops_it_before_it_begins(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match="replace"):
        Work(tmp_path, {"rule": "stable"}, LAYERS).claim()
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize(("tokens", "warned"), [(3, True), (9, True), (10, False)])
def test_a_table_of_few_tokens_says_so(tokens, warned):
    values = np.full((1, tokens), 0.25, dtype=np.float32)
    observations = collect((1,), [ImageObservations("a", np.arange(tokens), np.full(tokens, 9), values)])
    identity = {"identity": {"model_id": "m"}}
    done = Calibration(observations, tables_of(observations, identity, rule="count-5"), identity)
    assert (done.warnings().get(1, "").startswith(f"only {tokens} tokens are registered")) is warned
