from __future__ import annotations

import gzip
import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.benchmarks.data.unpack import UnpackError, safe_name, unpack


def make_zip(path: Path, files: dict[str, bytes], modes: dict[str, int] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (modes or {}).get(name, 0) << 16
            archive.writestr(info, body)
    return path


def make_tar(path: Path, files: dict[str, bytes], extra: list[tarfile.TarInfo] | None = None) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for name, body in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
        for info in extra or []:
            archive.addfile(info)
    return path


FILES = {"a.txt": b"one", "folder/b.bin": b"\0" * 5000, "./c": b""}


@pytest.mark.parametrize("name", ["x.zip", "x.tar", "x.tar.gz"])
def test_content_comes_out_as_it_went_in(tmp_path: Path, name: str) -> None:
    archive = (make_zip if name.endswith("zip") else make_tar)(tmp_path / name, FILES)
    out = tmp_path / "out"
    assert unpack(archive, out) == {"a.txt": 3, "folder/b.bin": 5000, "c": 0}
    assert (out / "folder" / "b.bin").read_bytes() == b"\0" * 5000
    assert sorted(path.name for path in out.iterdir()) == ["a.txt", "c", "folder"]


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
@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_no_file_leaves_the_folder(tmp_path: Path, name: str, make: object) -> None:
    suffix = "zip" if make is make_zip else "tar"
    archive = make(tmp_path / f"x.{suffix}", {"good": b"1", name: b"2"})  # type: ignore[operator]
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


def link(name: str, kind: bytes, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_tar_are_refused(tmp_path: Path, kind: bytes) -> None:
    archive = make_tar(tmp_path / "x.tar", {"a.txt": b"1"}, [link("l", kind, "a.txt")])
    with pytest.raises(UnpackError, match="'l'"):
        unpack(archive, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


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
    archive = make_tar(tmp_path / "x.tar", {"a": b"1", "./a": b"2"})
    with pytest.raises(UnpackError, match="'a'"):
        unpack(archive, tmp_path / "out")


def test_damage_is_noticed(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "x.zip", {"a": bytes(range(256)) * 40})
    data = bytearray(archive.read_bytes())
    data[60] ^= 0xFF
    archive.write_bytes(data)
    with pytest.raises(UnpackError, match="unpacked"):
        unpack(archive, tmp_path / "out")
    cut = make_tar(tmp_path / "y.tar.gz", {"a": bytes(range(256)) * 400})
    cut.write_bytes(cut.read_bytes()[:-200])
    with pytest.raises(UnpackError, match="unpacked"):
        unpack(cut, tmp_path / "out")
    (tmp_path / "z.zip").write_bytes(b"not an archive")
    with pytest.raises(UnpackError, match="zip"):
        unpack(tmp_path / "z.zip", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("at", [512 * 2, 512 * 2 + 100, 512 * 3, 512 * 3 + 1])
def test_a_tar_that_was_cut_is_not_taken_for_a_short_one(tmp_path: Path, at: int) -> None:
    whole = make_tar(tmp_path / "x.tar", {f"{i}.txt": b"x" * 400 for i in range(4)}).read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[:at])
    with pytest.raises(UnpackError, match=r"damaged|unexpected end"):
        unpack(tmp_path / "cut.tar", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz"])
def test_a_damaged_header_in_the_middle_is_not_the_end(tmp_path: Path, name: str) -> None:
    plain = bytearray(
        make_tar(tmp_path / "plain.tar", {f"{i}.txt": b"x" * 400 for i in range(4)}).read_bytes()
    )
    plain[1024 + 150] ^= 4  # the checksum of the second header
    (tmp_path / name).write_bytes(gzip.compress(bytes(plain)) if name.endswith("gz") else bytes(plain))
    with pytest.raises(UnpackError, match=r"bad checksum|invalid header"):
        unpack(tmp_path / name, tmp_path / "out")


def test_a_compressed_tar_is_read_to_its_own_checksum(tmp_path: Path) -> None:
    data = bytearray(make_tar(tmp_path / "x.tar.gz", FILES).read_bytes())
    data[-6] ^= 1
    (tmp_path / "x.tar.gz").write_bytes(data)
    with pytest.raises(UnpackError, match="CRC"):
        unpack(tmp_path / "x.tar.gz", tmp_path / "out")


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


@pytest.mark.parametrize("data", [bytes(512), bytes(10240)])
def test_a_file_of_zeros_is_not_taken_for_an_archive_of_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.zip").write_bytes(data)
    with pytest.raises(UnpackError, match="no file"):
        unpack(tmp_path / "x.zip", tmp_path / "out")


def test_a_zip_that_lost_a_member_from_its_list_is_refused(tmp_path: Path) -> None:
    data = bytearray(make_zip(tmp_path / "x.zip", {f"{i}.bin": b"x" * 40 for i in range(3)}).read_bytes())
    second = data.index(b"PK\1\2", data.index(b"PK\1\2") + 1)
    data[second + 33] = 4  # a comment so long that it hides the third
    (tmp_path / "x.zip").write_bytes(data)
    assert len(zipfile.ZipFile(tmp_path / "x.zip").infolist()) == 2
    with pytest.raises(UnpackError, match="3 files"):
        unpack(tmp_path / "x.zip", tmp_path / "out")
