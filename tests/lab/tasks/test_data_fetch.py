from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from file_server import FileServer, Served

from reweigh.errors import ArtifactError, InputError
from reweigh.files.artifacts import write_json
from reweigh.lab.tasks.data.fetch import FetchError, File, copy, digest_of, download

BODY = bytes(range(256)) * 4000
SHA = hashlib.sha256(BODY).hexdigest()


@pytest.fixture
def server() -> Iterator[FileServer]:
    with FileServer() as running:
        yield running


def fetch(server: FileServer, target: Path, served: Served, **known: Any) -> str:
    server.files["/f.bin"] = served
    file = File(name="f.bin", url=server.url("/f.bin"), **known)
    return download(file, target, first_wait=0.01, timeout=2, attempts=3)


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("known", [{}, {"size": len(BODY)}, {"checksum": f"sha256:{SHA}"}])
def test_a_whole_file_arrives(server: FileServer, tmp_path: Path, known: dict[str, Any]) -> None:
    assert fetch(server, tmp_path / "deep" / "f.bin", Served(BODY), **known) == SHA
    assert (tmp_path / "deep" / "f.bin").read_bytes() == BODY
    assert left_over(tmp_path / "deep") == ["f.bin"]


def test_a_cut_transfer_resumes_where_it_stopped(server: FileServer, tmp_path: Path) -> None:
    seen: list[int] = []
    server.files["/f.bin"] = Served(BODY, cuts=[600_000, 100_000])
    file = File(name="f.bin", url=server.url("/f.bin"))
    assert download(file, tmp_path / "f.bin", first_wait=0.01, advance=seen.append) == SHA
    assert server.sent == len(BODY)
    assert sum(seen) == len(BODY)
    assert [asked for _, asked in server.requests] == [None, "bytes=600000-", "bytes=700000-"]


def test_a_later_run_resumes_too(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="3 times"):
        fetch(server, tmp_path / "f.bin", Served(BODY, cuts=[1000, 1000, 1000]))
    assert not (tmp_path / "f.bin").exists()
    assert (tmp_path / "f.bin.part").stat().st_size == 3000
    assert fetch(server, tmp_path / "f.bin", Served(BODY)) == SHA
    assert server.sent == len(BODY)
    assert left_over(tmp_path) == ["f.bin"]


def test_another_version_there_begins_anew(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(FetchError):
        fetch(server, tmp_path / "f.bin", Served(b"x" * 500_000, etag='"old"', cuts=[400_000, 10, 10]))
    assert fetch(server, tmp_path / "f.bin", Served(BODY, etag='"new"')) == SHA
    assert (tmp_path / "f.bin").read_bytes() == BODY


@pytest.mark.parametrize(
    "served", [Served(BODY, etag=None), Served(BODY, etag='W/"x"'), Served(BODY, ranges=False)]
)
def test_without_a_firm_mark_or_ranges_it_begins_anew(
    server: FileServer, tmp_path: Path, served: Served
) -> None:
    served.cuts.append(500_000)
    assert fetch(server, tmp_path / "f.bin", served) == SHA


def test_a_part_longer_than_the_file_is_dropped(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "f.bin.part").write_bytes(b"y" * (len(BODY) + 5))
    write_json(tmp_path / "f.bin.part.json", {"url": server.url("/f.bin"), "mark": '"one"'})
    assert fetch(server, tmp_path / "f.bin", Served(BODY)) == SHA


def test_a_stray_part_of_another_address_is_not_continued(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "f.bin.part").write_bytes(b"y" * 100)
    write_json(tmp_path / "f.bin.part.json", {"url": "http://elsewhere/", "mark": '"one"'})
    assert fetch(server, tmp_path / "f.bin", Served(BODY)) == SHA


def test_passing_refusals_are_tried_again(server: FileServer, tmp_path: Path) -> None:
    assert fetch(server, tmp_path / "f.bin", Served(BODY, statuses=[503, 429])) == SHA


def test_a_missing_file_is_an_error_at_once(server: FileServer, tmp_path: Path) -> None:
    file = File(name="f.bin", url=server.url("/gone"))
    with pytest.raises(FetchError, match=r"(?s)HTTP 404.*--from"):
        download(file, tmp_path / "f.bin")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("known", "said"),
    [({"size": 7}, "catalogue"), ({"checksum": "md5:" + "0" * 32}, "md5:000")],
)
def test_what_does_not_agree_is_not_kept(
    server: FileServer, tmp_path: Path, known: dict[str, Any], said: str
) -> None:
    with pytest.raises(FetchError, match=said):
        fetch(server, tmp_path / "f.bin", Served(BODY), **known)
    assert left_over(tmp_path) == []


def test_a_body_of_unstated_length_needs_a_check(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="long"):
        fetch(server, tmp_path / "f.bin", Served(BODY, length=False))
    assert fetch(server, tmp_path / "f.bin", Served(BODY, length=False), checksum=f"sha256:{SHA}") == SHA
    served = Served(BODY, length=False, cuts=[1000])
    with pytest.raises(FetchError, match="checksum"):
        fetch(server, tmp_path / "g.bin", served, checksum=f"sha256:{SHA}")
    assert not (tmp_path / "g.bin").exists()


def test_a_body_beyond_its_bound_is_cut_off(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reweigh.lab.tasks.data.fetch.MAX_BYTES", 1000)
    for known in ({}, {"size": 5000}):
        with pytest.raises(FetchError, match="more than"):
            fetch(server, tmp_path / "f.bin", Served(BODY, chunked=True), **known)
        assert left_over(tmp_path) == []
    with pytest.raises(FetchError, match="catalogue"):
        fetch(server, tmp_path / "f.bin", Served(BODY), size=len(BODY) + 1)


def test_a_chunked_body_tells_its_own_end(server: FileServer, tmp_path: Path) -> None:
    assert fetch(server, tmp_path / "f.bin", Served(BODY, chunked=True, cuts=[5000])) == SHA


def test_redirects_are_followed(server: FileServer, tmp_path: Path) -> None:
    server.files["/new"] = Served(BODY)
    assert fetch(server, tmp_path / "f.bin", Served(b"", moved_to="/new")) == SHA


def test_nobody_there(server: FileServer, tmp_path: Path) -> None:
    with FileServer() as other:
        url = other.url("/f")
    with pytest.raises(FetchError, match="2 times"):
        download(File(name="f", url=url), tmp_path / "f", attempts=2, first_wait=0.01)


def test_a_local_copy_is_checked_the_same(tmp_path: Path) -> None:
    source = tmp_path / "mine.bin"
    source.write_bytes(BODY)
    target = tmp_path / "data" / "f.bin"
    assert copy(File(name="f.bin", url="", checksum=f"sha256:{SHA}"), source, target) == SHA
    with pytest.raises(FetchError, match="1,024,000"):
        copy(File(name="g.bin", url="", size=3), source, tmp_path / "g.bin")
    assert not (tmp_path / "g.bin").exists()
    assert source.read_bytes() == BODY


def test_unknown_kinds_of_checksum_are_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    assert digest_of(tmp_path / "f", "md5:?") == "md5:d41d8cd98f00b204e9800998ecf8427e"
    with pytest.raises(InputError, match="sha256"):
        digest_of(tmp_path / "f", "crc:1")


def test_redirects_without_end_are_one_message(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="redirects"):
        fetch(server, tmp_path / "f.bin", Served(BODY, moved_to="/f.bin"))


def test_a_place_that_cannot_be_written_is_named(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="written"):
        fetch(server, tmp_path / "file" / "f.bin", Served(BODY))
    (tmp_path / "mine").write_bytes(BODY)
    with pytest.raises(ArtifactError, match="written"):
        copy(File(name="f.bin", url=""), tmp_path / "mine", tmp_path / "file" / "f.bin")
