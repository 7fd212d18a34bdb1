"""The benchmarks' files: fetched whole from a server on this machine, checked, unpacked, or taken from a copy."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from typer.testing import CliRunner

from local_server import LocalServer, QuietHandler
from reweigh.cli.app import app
from reweigh.errors import ArtifactError, InputError, UnknownNameError
from reweigh.files.outputs import RECORD
from reweigh.lab.tasks import data as module
from reweigh.lab.tasks.base import BENCHMARKS
from reweigh.lab.tasks.data import SCRATCH, Dataset, FetchError, File, check, data_root, folder_of, get, state
from reweigh.lab.tasks.open import dataset, datasets
from toy_benchmark import Toy

pytest.importorskip("pooch", reason="needs the extra 'eval'")
TABLE = b"person, man\n"


class FileServer(LocalServer):
    """Serves bytes by path; the next answers may break off after some bytes."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cuts: list[int] = []
        self.requests: list[str] = []
        outer = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                outer.requests.append(self.path)
                body = outer.files.get(self.path)
                self.send_response(404 if body is None else 200)
                self.send_header("content-length", str(len(body or b"")))
                self.end_headers()
                cut = outer.cuts.pop(0) if outer.cuts else None
                self.wfile.write((body or b"")[:cut])
                if cut is not None:
                    self.wfile.flush()
                    self.connection.shutdown(socket.SHUT_RDWR)

        super().__init__(Handler)


def make_zip(path: Path, files: dict[str, bytes]) -> bytes:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            archive.writestr(zipfile.ZipInfo(name), body)
    return path.read_bytes()


def md5(body: bytes) -> str:
    return "md5:" + hashlib.md5(body, usedforsecurity=False).hexdigest()


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REWEIGH_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(module, "RETRIES", 0)
    return tmp_path / "data"


@pytest.fixture
def server() -> Iterator[FileServer]:
    with FileServer() as running:
        yield running


@pytest.fixture
def entry(server: FileServer, tmp_path: Path, sandbox: None) -> Dataset:
    images = make_zip(tmp_path / "made.zip", {"images/1.jpg": b"one", "images/2.jpg": b"two"})
    server.files = {"/table.txt": TABLE, "/images.zip": images}
    made = Dataset(
        name="toy",
        title="A toy",
        license="CC0",
        page="http://toy",
        files=(
            File(name="q/table.txt", url=f"{server.address}/table.txt", size=12, checksum=md5(TABLE)),
            File(name="images.zip", url=f"{server.address}/images.zip", holds=("images",)),
        ),
        by_hand="nothing else",
    )
    # a third party's benchmark brings its dataset along
    with_files = type("WithFiles", (Toy,), {"name": "with-files", "dataset": made})
    BENCHMARKS.add("with-files", with_files)
    return made


def nothing_left(folder: Path) -> bool:
    return not list(folder.glob(f"{SCRATCH}*"))


def test_get_check_and_get_again(entry: Dataset, server: FileServer, root: Path) -> None:
    assert (state(entry), len(check(entry))) == ("absent", 2)
    assert get(entry) == root / "toy"
    assert (state(entry), check(entry)) == ("complete", [])
    assert (root / "toy" / "q" / "table.txt").read_bytes() == TABLE
    assert (root / "toy" / "images" / "2.jpg").read_bytes() == b"two"
    assert sorted(path.name for path in (root / "toy").iterdir()) == [".lock", "images", "q"]
    get(entry)
    assert len(server.requests) == 2


def test_a_failed_get_keeps_what_is_whole(entry: Dataset, server: FileServer, root: Path) -> None:
    whole = server.files.pop("/images.zip")
    with pytest.raises(FetchError, match=r"(?s)404.*--from"):
        get(entry)
    assert (state(entry), check(entry)) == ("partial", ["images is missing"])
    server.files["/images.zip"] = whole
    (root / "toy" / f"{SCRATCH}killed").mkdir()
    get(entry)
    assert state(entry) == "complete"
    assert server.requests.count("/table.txt") == 1
    assert nothing_left(root / "toy")


def test_a_cut_transfer_is_not_a_file_and_is_tried_again(
    entry: Dataset, server: FileServer, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.cuts = [5]
    with pytest.raises(FetchError, match="table"):
        get(entry)
    assert state(entry) == "absent"
    assert nothing_left(root / "toy")
    monkeypatch.setattr(module, "RETRIES", 1)
    server.cuts = [5]
    get(entry)
    assert check(entry) == []


def test_another_content_is_refused(entry: Dataset, server: FileServer) -> None:
    server.files["/table.txt"] = b"person, MAN\n"
    with pytest.raises(FetchError, match="expected file"):
        get(entry)
    assert state(entry) == "absent"


def test_check_sees_damage_and_get_mends_it(entry: Dataset, root: Path) -> None:
    get(entry)
    (root / "toy" / "q" / "table.txt").write_bytes(b"person, MAN\n")
    (root / "toy" / "images" / "1.jpg").unlink()
    (root / "toy" / "images").rename(root / "toy" / "elsewhere")
    assert [problem.split()[0] for problem in check(entry)] == ["q/table.txt", "images"]
    get(entry)
    assert check(entry) == []
    assert (root / "toy" / "images" / "1.jpg").read_bytes() == b"one"


@pytest.mark.parametrize(
    "body", [b"not an archive", b"", "other", "cut"], ids=["text", "empty", "other", "cut"]
)
def test_a_broken_archive_leaves_nothing(
    entry: Dataset, server: FileServer, root: Path, tmp_path: Path, body: Any
) -> None:
    if body == "other":
        body = make_zip(tmp_path / "other.zip", {"pictures/1.jpg": b"one"})
    elif body == "cut":
        body = server.files["/images.zip"][:-40]
    server.files["/images.zip"] = body
    with pytest.raises(FetchError, match=r"images\.zip"):
        get(entry)
    assert not (root / "toy" / "images").exists()
    assert nothing_left(root / "toy")


def test_an_archive_cannot_write_outside(
    entry: Dataset, server: FileServer, root: Path, tmp_path: Path
) -> None:
    names = ["images/1.jpg", "../evil", "/evil", "images/../../../evil"]
    server.files["/images.zip"] = make_zip(tmp_path / "evil.zip", dict.fromkeys(names, b"x"))
    get(entry)
    assert {path.parent for path in tmp_path.rglob("evil")} <= {root / "toy" / "images"}
    assert sorted(path.name for path in (root / "toy").iterdir()) == [".lock", "images", "q"]


@pytest.mark.parametrize("place", ["", "images/"])
def test_an_archive_cannot_claim_your_files_as_ours(
    entry: Dataset, server: FileServer, root: Path, tmp_path: Path, place: str
) -> None:
    held = {"images/1.jpg": b"x", f"{place}{RECORD}": b"{}"}
    server.files["/images.zip"] = make_zip(tmp_path / "evil.zip", held)
    with pytest.raises(FetchError, match=r"reweigh-outputs\.json"):
        get(entry)
    assert not list(root.rglob(RECORD))


@pytest.mark.parametrize(("place", "exists"), [("images", False), ("q", True), ("q", False)])
def test_nothing_is_written_through_a_link(
    entry: Dataset, root: Path, tmp_path: Path, place: str, exists: bool
) -> None:
    elsewhere = tmp_path / "elsewhere"
    if exists:
        elsewhere.mkdir()
    link = root / "toy" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    with pytest.raises(InputError, match="symbolic link"):
        get(entry)
    assert elsewhere.exists() == exists
    assert not exists or not list(elsewhere.iterdir())


@pytest.mark.parametrize("unpacked", [False, True])
def test_a_local_copy_needs_no_server(
    entry: Dataset, server: FileServer, tmp_path: Path, root: Path, unpacked: bool
) -> None:
    mine = tmp_path / "mine"
    (mine / "images").mkdir(parents=True)
    (mine / "table.txt").write_bytes(TABLE)
    (mine / "images" / "3.jpg").write_bytes(b"three")
    if not unpacked:
        (mine / "images.zip").write_bytes(server.files["/images.zip"])
    get(entry, source=mine)
    assert check(entry) == server.requests == []
    names = {path.name for path in (root / "toy" / "images").iterdir()}
    assert names == ({"3.jpg"} if unpacked else {"1.jpg", "2.jpg"})
    assert (mine / "table.txt").exists()


def test_a_wrong_local_copy_is_refused(entry: Dataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exist"):
        get(entry, source=tmp_path / "nowhere")
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match=r"table\.txt"):
        get(entry, source=tmp_path / "mine")
    (tmp_path / "mine" / "table.txt").write_bytes(b"another one!")
    with pytest.raises(FetchError, match="checksum"):
        get(entry, source=tmp_path / "mine")
    assert state(entry) == "absent"


def test_files_of_the_hub_are_of_a_fixed_revision(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"hf://datasets/org/set@{'a' * 40}/deep/q.json"
    entry = Dataset(name="hub", title="", license="", page="", files=(File(name="questions.json", url=url),))
    with pytest.raises(FetchError, match=r"hf://.*cannot"):  # the tests are offline
        get(entry)

    def download(repo: str, name: str, **how: Any) -> str:
        assert (repo, name, how["repo_type"], how["revision"]) == (
            *("org/set", "deep/q.json", "dataset"),
            "a" * 40,
        )
        (how["local_dir"] / "deep").mkdir(parents=True)
        (how["local_dir"] / name).write_text("{}")
        return str(how["local_dir"] / name)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    get(entry)
    assert (root / "hub" / "questions.json").read_text() == "{}"
    assert nothing_left(root / "hub")


def test_a_place_that_cannot_be_written_is_named(entry: Dataset, root: Path) -> None:
    root.write_text("")
    with pytest.raises(ArtifactError, match="written"):
        get(entry)


@pytest.mark.parametrize("place", ["x" * 5000, "~nobody-of-that-name/data"])
def test_a_data_folder_that_cannot_be_is_refused(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWEIGH_DATA", place)
    with pytest.raises(InputError, match="REWEIGH_DATA"):
        data_root()


def test_the_variable_moves_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REWEIGH_DATA", str(tmp_path / "elsewhere"))
    assert folder_of(dataset("amber")) == tmp_path / "elsewhere" / "amber"
    monkeypatch.delenv("REWEIGH_DATA")
    assert data_root() == Path.home() / ".cache" / "reweigh" / "data"


def test_the_catalogue_is_sound() -> None:
    found = datasets()
    assert {"chair", "coco-val2014", "coco-train2014", "gqa", "pope-gqa"} <= found.keys()
    for name, entry in found.items():
        assert name == entry.name
        assert entry.license
        assert entry.page.startswith("https://")
        assert len({file.name for file in entry.files}) == len(entry.files)
        for file in entry.files:
            assert file.name.endswith(".zip") == bool(file.holds)
            if file.checksum:
                kind, _, value = file.checksum.partition(":")
                assert len(value) == {"md5": 32, "sha256": 64}[kind]
            elif name not in ("gqa", "mmvet"):  # archives without a published checksum
                assert file.url.startswith("hf://")
            # Of a branch, the same address would give other files on another day.
            fixed = re.search(r"[/@][0-9a-f]{40}/|/releases/download/v\d|cocodataset|data/gqa/", file.url)
            assert fixed, file.url
    with pytest.raises(UnknownNameError, match="did you mean amber"):
        dataset("ambr")


def test_the_commands(entry: Dataset, root: Path) -> None:
    run = CliRunner().invoke
    listed = json.loads(run(app, ["data", "--json"]).stdout)
    toy = next(row for row in listed if row["name"] == "toy")
    assert (toy["state"], toy["checksums"][1], toy["license"]) == ("absent", "unknown", "CC0")
    assert "toy" in run(app, ["data"]).stdout
    failed = run(app, ["data", "toy", "--check"])
    assert failed.exit_code == 1
    assert "table.txt" in failed.stdout
    got = run(app, ["data", "toy"])
    assert got.exit_code == 0
    assert got.stdout.strip() == str(root / "toy")
    assert "note: " in got.stderr
    assert "next: reweigh eval run MODEL -b with-files -o RUN" in got.stderr
    good = run(app, ["data", "toy", "--check"])
    assert (good.exit_code, good.stdout.strip()) == (0, "toy: all 2 files are complete")
    assert json.loads(run(app, ["data", "toy", "--check", "--json"]).stdout)["problems"] == []


def test_images_for_calibration_name_the_next_command(root: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "train2014").mkdir(parents=True)
    done = CliRunner().invoke(app, ["data", "coco-train2014", "--from", str(tmp_path / "mine")])
    assert done.exit_code == 0, done.output
    assert f"next: reweigh calibrate MODEL {root / 'coco' / 'train2014'} -o TABLE" in done.stderr
