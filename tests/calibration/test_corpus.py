"""Which images a calibration sees: folders, manifests and lists, with bad ones told apart, not fatal."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from checkpoints import picture
from reweigh.calibration.corpus import open_corpus
from reweigh.errors import CalibrationError, ImageError, InputError


@pytest.fixture
def folder(tmp_path):
    for number, name in enumerate(["b.png", "sub/a.png", "c.png"]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        picture(number).save(tmp_path / name)
    return tmp_path


def names(corpus):
    return [image.name for image in corpus.images]


def test_a_folder_by_relative_path(folder):
    corpus = open_corpus(str(folder))
    assert names(corpus) == ["b.png", "c.png", "sub/a.png"]
    assert np.array_equal(corpus.images[0].read(), picture(0))
    assert len(corpus) == 3


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("list.txt", "c.png\n\n  sub/a.png \r\n"),
        ("list", "c.png\nsub/a.png"),
        ("list.txt", "\ufeffc.png\nsub/a.png"),
        ("list.json", '["c.png", {"image": "sub/a.png"}]'),
        ("list.json", '[{"file_name": "c.png"}, {"image": "sub/a.png", "file_name": "no"}]'),
        ("list.jsonl", '"c.png"\n{"image": "sub/a.png", "note": "line\u2028separator"}\n\n'),
    ],
)
def test_manifests_in_their_own_order_relative_to_themselves(folder, file, text):
    path = folder / file
    path.write_text(text, encoding="utf-8")
    corpus = open_corpus(path)
    assert names(corpus) == ["c.png", "sub/a.png"]
    assert np.array_equal(corpus.images[1].read(), picture(1))


def test_a_manifest_may_name_files_anywhere(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("elsewhere") / "list.txt"
    path.write_text(str(folder / "c.png"))
    assert np.array_equal(open_corpus(path).images[0].read(), picture(2))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("list.json", b"{", "cannot be read"),
        ("list.jsonl", b"{}{}\n", "cannot be read"),
        ("list.txt", b"\xff\xfe\x00", "cannot be read"),
        ("list.json", b'{"images": []}', "must list paths"),
        ("list.json", b"3", "must list paths"),
        ("list.json", b"[1, 2]", "must list paths"),
        ("list.json", b'[{"id": 1}]', "must list paths"),
        ("list.json", b"[]", "names no image"),
        ("list.txt", b"\n\n", "names no image"),
    ],
)
def test_bad_manifests_are_refused_by_name(tmp_path, file, content, message):
    (tmp_path / file).write_bytes(content)
    with pytest.raises(InputError, match=rf"{file}.*{message}|{message}.*{file}"):
        open_corpus(tmp_path / file)


def test_one_image_is_not_a_manifest(folder):
    with pytest.raises(InputError, match="folder"):
        open_corpus(folder / "c.png")


def test_an_empty_folder_nothing_and_an_empty_list(tmp_path):
    with pytest.raises(InputError, match="no image"):
        open_corpus(tmp_path)
    with pytest.raises(InputError, match="manifest"):
        open_corpus(tmp_path / "nothing")
    with pytest.raises(InputError, match="no image"):
        open_corpus([])


def test_lists_of_paths_pictures_and_pairs(folder):
    corpus = open_corpus([folder / "c.png", str(folder / "b.png"), picture(5), ("mine", picture(6))])
    assert names(corpus) == ["c.png", "b.png", "image-000002", "mine"]
    assert np.array_equal(corpus.images[3].read(), picture(6))


@pytest.mark.parametrize("item", [3, np.zeros((4, 4, 3)), ("a", 3), ("a", picture(0), "b"), None])
def test_items_that_are_not_pictures_are_refused(item):
    with pytest.raises(InputError, match="item 1"):
        open_corpus([picture(0), item])


def test_the_same_content_under_two_names_counts_twice_under_one_never(folder):
    picture(0).save(folder / "copy.png")
    assert len(open_corpus(folder)) == 4
    with pytest.raises(ImageError, match=r"b\.png"):
        open_corpus([folder / "b.png", folder / "b.png"])
    assert len(open_corpus([("one", picture(0)), ("two", picture(0))])) == 2


def test_keys_tell_content_apart(folder):
    before = open_corpus(folder)
    picture(9).save(folder / "c.png")
    after = open_corpus(folder)
    changed = [
        one.name for one, other in zip(before.images, after.images, strict=True) if one.key != other.key
    ]
    assert changed == ["c.png"]
    assert before.hash != after.hash


def test_the_hash_knows_the_order(folder):
    paths = [folder / "b.png", folder / "c.png"]
    one, other = open_corpus(paths), open_corpus(paths[::-1])
    assert one.hash != other.hash
    assert {image.key for image in one.images} == {image.key for image in other.images}


def test_bad_images_are_members_and_fail_when_read(tmp_path):
    (tmp_path / "folder.png").mkdir()
    stream = io.BytesIO()
    picture(0, (200, 200)).save(stream, "JPEG")
    (tmp_path / "cut.jpg").write_bytes(stream.getvalue()[:300])
    Image.new("1", (10_000, 5_000)).save(tmp_path / "huge.png")
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    (tmp_path / "list.json").write_text(
        json.dumps(["folder.png", "gone.png", "cut.jpg", "huge.png", "dot.png"])
    )
    reasons = []
    for image in open_corpus(tmp_path / "list.json").images:
        with pytest.raises(ImageError) as caught:
            image.read()
        reasons.append(caught.value.message)
    for reason, words in zip(
        reasons,
        ["is a folder", "does not exist", "cannot be read", "50.0 megapixels", "too small"],
        strict=True,
    ):
        assert words in reason


def test_a_picture_whose_file_is_cut_fails_when_read_not_before():
    stream = io.BytesIO()
    picture(0, (200, 200)).save(stream, "JPEG")
    corpus = open_corpus([Image.open(io.BytesIO(stream.getvalue()[:-500])), picture(1)])
    with pytest.raises(ImageError):
        corpus.images[0].read()
    assert corpus.images[1].read().size == (56, 56)


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes there")
def test_a_name_that_is_not_utf8_is_written_out(tmp_path):
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png"))
    picture(0).save(odd)
    odd.with_name(os.fsdecode(b"broken\xff.png")).write_bytes(b"no image")
    broken, whole = open_corpus(tmp_path).images
    assert (broken.name, whole.name) == (r"broken\udcff.png", r"caf\udce9.png")
    assert whole.read().size == (56, 56)
    assert len(open_corpus([odd]).hash) == 64
    with pytest.raises(ImageError, match=r"broken\\udcff") as caught:
        broken.read()
    caught.value.message.encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("list.json", "[" * 200_000),
        ("list.jsonl", "[" * 200_000 + "\n"),
        ("list.json", '["a\\u0000.png"]'),
        ("list.txt", "a\0.png\n"),
        ("list.json", '["\\ud800.png"]'),
        ("list.json", '["  "]'),
        ("list.json", "1" * 5000),
    ],
)
def test_a_manifest_that_is_not_what_it_seems_is_one_message(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match="manifest"):
        open_corpus(tmp_path / name)


def test_a_link_that_leads_nowhere_is_a_member_that_fails_when_read(folder):
    (folder / "z.png").symlink_to(folder / "gone.png")
    last = open_corpus(folder).images[-1]
    assert last.name == "z.png"
    with pytest.raises(ImageError, match="exist"):
        last.read()


def test_an_address_is_refused_with_what_to_do():
    with pytest.raises(InputError, match="address") as caught:
        open_corpus("s3://bucket/pictures")
    assert "download" in caught.value.hint


def test_an_image_that_is_not_what_was_listed_ends_the_work(folder):
    """Another file of the same name, on this machine or a worker's, would pass for what was hashed."""
    first, second = open_corpus(folder).images[:2]
    first.read()
    (folder / "b.png").write_bytes((folder / "c.png").read_bytes())
    with pytest.raises(CalibrationError, match=r"b\.png"):
        first.read()
    (folder / "c.png").unlink()
    with pytest.raises(CalibrationError, match=r"c\.png"):
        second.read()


def test_an_image_that_could_not_be_read_stays_left_out(folder):
    """Its key says so; that it can be read later, or on another machine, must not change the result."""
    (folder / "list.txt").write_text(f"{folder}/late.png\n")
    [late] = open_corpus(folder / "list.txt").images
    picture(0).save(folder / "late.png")
    with pytest.raises(ImageError, match="listed"):
        late.read()
