from __future__ import annotations

import stat
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.lab.tasks.data.unpack import UnpackError, safe_name, unpack


def make_zip(path: Path, files: dict[str, bytes], modes: dict[str, int] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (modes or {}).get(name, 0) << 16
            archive.writestr(info, body)
    return path


FILES = {"a.txt": b"one", "folder/b.bin": b"\0" * 5000, "./c": b""}


def test_content_comes_out_as_it_went_in(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "x.zip", FILES)
    out = tmp_path / "out"
    assert unpack(archive, out) == {"a.txt": 3, "folder/b.bin": 5000, "c": 0}
    assert (out / "folder" / "b.bin").read_bytes() == b"\0" * 5000
    assert sorted(path.name for path in out.iterdir()) == ["a.txt", "c", "folder"]


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "x.zip", FILES)
    with pytest.raises(UnpackError, match="images"):
        unpack(archive, tmp_path / "out", holds=["a.txt", "images"])
    assert list((tmp_path / "out").iterdir()) == []
    assert unpack(archive, tmp_path / "out", holds=["a.txt", "folder"])


def test_an_existing_folder_is_filled_up(tmp_path: Path) -> None:
    (tmp_path / "out" / "folder").mkdir(parents=True)
    (tmp_path / "out" / "folder" / "mine").write_text("stays")
    (tmp_path / "out" / "a.txt").write_text("old")
    unpack(make_zip(tmp_path / "x.zip", FILES), tmp_path / "out")
    assert (tmp_path / "out" / "folder" / "mine").read_text() == "stays"
    assert (tmp_path / "out" / "a.txt").read_bytes() == b"one"


@pytest.mark.parametrize(
    "name", ["../evil", "a/../../evil", "/evil", "C:/evil", "..\\evil", "a/b\\..\\c", "."]
)
def test_no_file_leaves_the_folder(tmp_path: Path, name: str) -> None:
    archive = make_zip(tmp_path / "x.zip", {"good": b"1", name: b"2"})
    with pytest.raises(UnpackError, match="lead"):
        unpack(archive, tmp_path / "deep" / "out")
    assert list((tmp_path / "deep" / "out").iterdir()) == []
    assert not list(tmp_path.rglob("evil"))


@given(st.text(st.sampled_from("./\\a:b\0 "), max_size=12))
def test_a_name_that_passes_stays_below(name: str) -> None:
    root = Path("/root/of/all")
    try:
        safe = safe_name(name, Path("x"))
    except UnpackError:
        return
    resolved = Path(root / safe)
    assert ".." not in resolved.parts
    assert root in resolved.parents


def test_links_in_zip_are_refused(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "x.zip", {"l": b"/etc/passwd"}, {"l": stat.S_IFLNK | 0o777})
    with pytest.raises(UnpackError, match="link"):
        unpack(archive, tmp_path / "out")


def test_bombs_stop_at_the_bound(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "x.zip", {"zeros": b"\0" * 3_000_000})
    assert archive.stat().st_size < 10_000
    with pytest.raises(UnpackError, match="1,000,000"):
        unpack(archive, tmp_path / "out", max_bytes=1_000_000)
    many = make_zip(tmp_path / "y.zip", {f"{i}": b"" for i in range(20)})
    with pytest.raises(UnpackError, match="10 files"):
        unpack(many, tmp_path / "out", max_files=10)
    assert list((tmp_path / "out").iterdir()) == []


def test_the_same_name_twice_is_refused(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "x.zip", {"a": b"1", "./a": b"2"})
    with pytest.raises(UnpackError, match="'a'"):
        unpack(archive, tmp_path / "out")


def test_damage_is_noticed(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "x.zip", {"a": bytes(range(256)) * 40})
    data = bytearray(archive.read_bytes())
    data[60] ^= 0xFF
    archive.write_bytes(data)
    with pytest.raises(UnpackError, match="unpacked"):
        unpack(archive, tmp_path / "out")
    whole = make_zip(tmp_path / "y.zip", {"a": bytes(range(256)) * 400}).read_bytes()
    for end in (-1, -30, len(whole) // 2, 10, 0):
        (tmp_path / "y.zip").write_bytes(whole[:end])
        with pytest.raises(UnpackError, match="unpacked"):
            unpack(tmp_path / "y.zip", tmp_path / "out")
    (tmp_path / "z.zip").write_bytes(b"not an archive")
    with pytest.raises(UnpackError, match="zip"):
        unpack(tmp_path / "z.zip", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("names", [["a", "a/b"], ["a/b", "a"]])
def test_one_name_as_file_and_folder_is_refused(tmp_path: Path, names: list[str]) -> None:
    archive = make_zip(tmp_path / "x.zip", dict.fromkeys(names, b"x"))
    with pytest.raises(UnpackError, match="both"):
        unpack(archive, tmp_path / "out")


def test_a_zip_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "x.zip", {"a.bin": bytes(range(256)) * 4})
    data = bytearray(archive.read_bytes())
    data[60] ^= 1
    archive.write_bytes(data)
    with pytest.raises(UnpackError, match="unpacked"):
        unpack(archive, tmp_path / "out")


@pytest.mark.parametrize("method", [9, 12, 14, 99])
def test_a_member_with_another_compression_is_one_message(tmp_path: Path, method: int) -> None:
    """A flipped bit can turn deflate into bzip2 or LZMA, whose errors differ."""
    data = bytearray(make_zip(tmp_path / "x.zip", {"a.bin": bytes(range(256)) * 4}).read_bytes())
    data[8] = data[data.index(b"PK\1\2") + 10] = method
    (tmp_path / "x.zip").write_bytes(data)
    with pytest.raises(UnpackError, match="unpacked"):
        unpack(tmp_path / "x.zip", tmp_path / "out")


def test_an_archive_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnpackError, match="no file"):
        unpack(make_zip(tmp_path / "x.zip", {}), tmp_path / "out")


def test_a_zip_that_lost_a_member_from_its_list_is_refused(tmp_path: Path) -> None:
    data = bytearray(make_zip(tmp_path / "x.zip", {f"{i}.bin": b"x" * 40 for i in range(3)}).read_bytes())
    second = data.index(b"PK\1\2", data.index(b"PK\1\2") + 1)
    data[second + 33] = 4  # a comment so long that it hides the third
    (tmp_path / "x.zip").write_bytes(data)
    assert len(zipfile.ZipFile(tmp_path / "x.zip").infolist()) == 2
    with pytest.raises(UnpackError, match="3 files"):
        unpack(tmp_path / "x.zip", tmp_path / "out")
