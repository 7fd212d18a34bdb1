from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from file_server import FileServer, Served
from test_data_unpack import make_zip
from typer.testing import CliRunner

from reweigh.cli.app import app
from reweigh.errors import ArtifactError, InputError, UnknownNameError
from reweigh.lab.tasks.base import BENCHMARKS
from reweigh.lab.tasks.data.fetch import FetchError, File
from reweigh.lab.tasks.data.store import Dataset, check, data_root, folder_of, get, state
from reweigh.lab.tasks.data.unpack import SCRATCH
from reweigh.lab.tasks.open import dataset, datasets
from toy_benchmark import Toy

TABLE = b"person, man\n"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REWEIGH_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def server() -> Iterator[FileServer]:
    with FileServer() as running:
        yield running


@pytest.fixture
def entry(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    archive = make_zip(tmp_path / "made.zip", {"images/1.jpg": b"one", "images/2.jpg": b"two"})
    server.files = {"/table.txt": Served(TABLE), "/images.zip": Served(archive.read_bytes())}
    made = Dataset(
        name="toy",
        title="A toy",
        license="CC0",
        page="http://toy",
        files=(
            File(
                name="table.txt",
                url=server.url("/table.txt"),
                size=len(TABLE),
                checksum="md5:" + hashlib.md5(TABLE, usedforsecurity=False).hexdigest(),
            ),
            File(name="images.zip", url=server.url("/images.zip"), holds=("images",)),
        ),
        by_hand="nothing else",
    )
    # a third party's benchmark brings its dataset along
    with_files = type("WithFiles", (Toy,), {"name": "with-files", "dataset": made})
    monkeypatch.setitem(BENCHMARKS._loaded, "with-files", with_files)
    return made


def test_get_check_and_get_again(entry: Dataset, server: FileServer, root: Path) -> None:
    assert state(entry) == "absent"
    assert get(entry) == root / "toy"
    assert state(entry) == "complete"
    assert check(entry) == []
    assert (root / "toy" / "images" / "2.jpg").read_bytes() == b"two"
    assert not (root / "toy" / "images.zip").exists()
    asked = len(server.requests)
    get(entry)
    assert len(server.requests) == asked
    receipt = json.loads((root / "toy" / "receipt.json").read_text())["files"]
    assert receipt["table.txt"]["checked_against"] == "catalogue"
    assert receipt["images.zip"]["checked_against"] == "first fetch"
    assert receipt["images.zip"]["sha256"] == hashlib.sha256(server.files["/images.zip"].body).hexdigest()


def test_an_interrupted_get_is_partial_and_goes_on(entry: Dataset, server: FileServer) -> None:
    whole = server.files.pop("/images.zip")
    with pytest.raises(FetchError, match="404"):
        get(entry)
    assert state(entry) == "partial"
    assert check(entry) == ["images.zip has not been fetched"]
    server.files["/images.zip"] = whole
    get(entry)
    assert state(entry) == "complete"
    assert [path for path, _ in server.requests].count("/table.txt") == 1


def test_what_a_kill_left_behind_is_used_or_cleared(entry: Dataset, server: FileServer, root: Path) -> None:
    (root / "toy" / f"{SCRATCH}stale" / "deep").mkdir(parents=True)
    (root / "toy" / ".unpacking-mine").mkdir()
    (root / "toy" / "table.txt").write_bytes(TABLE)
    get(entry)
    assert check(entry) == []
    assert not list((root / "toy").glob(f"{SCRATCH}*"))
    assert (root / "toy" / ".unpacking-mine").is_dir()
    assert [path for path, _ in server.requests] == ["/images.zip"]


def test_a_stray_file_of_another_content_is_fetched_anew(entry: Dataset, root: Path) -> None:
    (root / "toy").mkdir(parents=True)
    (root / "toy" / "table.txt").write_bytes(b"person, MAN\n")
    get(entry)
    assert check(entry) == []


def test_check_sees_damage_and_get_mends_it(entry: Dataset, root: Path) -> None:
    get(entry)
    (root / "toy" / "table.txt").write_bytes(b"person, MAN\n")
    assert "has the checksum md5:" in check(entry)[0]
    (root / "toy" / "table.txt").write_bytes(b"short")
    (root / "toy" / "images" / "1.jpg").unlink()
    (root / "toy" / "images" / "2.jpg").write_bytes(b"longer")
    assert len(check(entry)) == 3
    get(entry)
    assert check(entry) == []


def test_a_local_copy_as_published(entry: Dataset, server: FileServer, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "table.txt").write_bytes(TABLE)
    (mine / "images.zip").write_bytes(server.files["/images.zip"].body)
    get(entry, source=mine)
    assert check(entry) == []
    assert server.requests == []


def test_a_local_copy_already_unpacked(
    entry: Dataset, server: FileServer, tmp_path: Path, root: Path
) -> None:
    mine = tmp_path / "mine"
    (mine / "images" / "deep").mkdir(parents=True)
    (mine / "images" / "deep" / "3.jpg").write_bytes(b"three")
    (mine / "table.txt").write_bytes(TABLE)
    get(entry, source=mine)
    assert (root / "toy" / "images" / "deep" / "3.jpg").read_bytes() == b"three"
    assert check(entry) == []
    assert server.requests == []


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


def test_the_variable_moves_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REWEIGH_DATA", str(tmp_path / "elsewhere"))
    assert folder_of(dataset("amber")) == tmp_path / "elsewhere" / "amber"
    monkeypatch.delenv("REWEIGH_DATA")
    assert data_root() == Path.home() / ".cache" / "reweigh" / "data"


def test_the_catalogue_is_sound() -> None:
    for name, entry in datasets().items():
        assert name == entry.name
        assert entry.license
        assert entry.page.startswith("https://")
        assert len({file.name for file in entry.files}) == len(entry.files)
        for file in entry.files:
            assert file.url.startswith("http")
            assert file.name.endswith(".zip") == bool(file.holds)
            if file.checksum:
                kind, _, value = file.checksum.partition(":")
                assert len(value) == {"md5": 32, "sha256": 64}[kind]
    with pytest.raises(UnknownNameError, match="did you mean amber"):
        dataset("ambr")


def test_the_commands(entry: Dataset, root: Path) -> None:
    run = CliRunner().invoke
    listed = json.loads(run(app, ["data", "--json"]).stdout)
    assert [row["state"] for row in listed if row["name"] == "toy"] == ["absent"]
    assert [row["checksums"][1] for row in listed if row["name"] == "toy"] == ["unknown"]
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


def test_real_copies_match_the_catalogue(tmp_path: Path) -> None:
    shared = Path(__file__).parents[3].parent / "shared" / "data"
    if not (shared / "amber").is_dir():
        pytest.skip("no ../shared/data with public copies beside the repository")
    get(dataset("amber"), source=shared / "amber")
    assert check(dataset("amber")) == []
    chair = dataset("chair").files[0]
    assert (
        hashlib.sha256((shared / "chair" / "synonyms.txt").read_bytes()).hexdigest()
        == str(chair.checksum)[7:]
    )


@pytest.mark.parametrize(
    "text", ["[]", "null", "3", '{"files": []}', '{"files": {"table.txt": 3}}', "{}", "[" * 99_999]
)
def test_a_receipt_that_is_none_is_one_message(entry: Dataset, root: Path, text: str) -> None:
    (root / "toy").mkdir(parents=True)
    (root / "toy" / "receipt.json").write_text(text)
    for look in (state, check, get):
        with pytest.raises(ArtifactError, match=r"receipt\.json"):
            look(entry)


def test_a_file_without_a_published_checksum_must_stay_the_one_fetched_first(
    entry: Dataset, server: FileServer, root: Path, tmp_path: Path
) -> None:
    get(entry)
    (root / "toy" / "images" / "1.jpg").unlink()
    changed = make_zip(tmp_path / "changed.zip", {"images/1.jpg": b"eno", "images/2.jpg": b"two"})
    kept, server.files["/images.zip"] = server.files["/images.zip"], Served(changed.read_bytes())
    with pytest.raises(FetchError, match="checksum"):
        get(entry)
    server.files["/images.zip"] = kept
    get(entry)
    assert check(entry) == []


def test_downloads_are_of_a_fixed_revision() -> None:
    """Of a branch, the same address would give other files on another day."""
    for name in ("pope", "mmhal", "mmvet", "amber"):
        for file in dataset(name).files:
            assert re.search(r"/[0-9a-f]{40}/|/releases/download/v\d", file.url), file.url


@pytest.mark.parametrize("place", ["x" * 5000, "~nobody-of-that-name/data"])
def test_a_data_folder_that_cannot_be_is_refused(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWEIGH_DATA", place)
    with pytest.raises(InputError, match="REWEIGH_DATA"):
        data_root()
