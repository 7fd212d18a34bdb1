"""Files are whole or absent, hashed, the same bytes for the same content, and never trusted blindly."""

from __future__ import annotations

import errno
import json
import math
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.errors import ArtifactError, InputError
from reweigh.files import artifacts

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(-1e300, 1e300) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_whole_with_ordinary_rights(tmp_path):
    path = tmp_path / "deep" / "er" / "page.json"
    artifacts.write_json(path, {"b": 1, "a": "ä"})
    assert path.read_text(encoding="utf-8") == '{\n  "a": "ä",\n  "b": 1\n}\n'
    assert listing(path.parent) == ["page.json"]
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_a_failed_write_leaves_the_old_content_and_nothing_else(tmp_path):
    path = tmp_path / "page"
    artifacts.write_text(path, "old")

    def write_half():
        with artifacts.replacing(path) as temporary:
            temporary.write_text("half of the new")
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        write_half()
    assert path.read_text() == "old"
    assert listing(tmp_path) == ["page"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_is_named_and_leaves_nothing_half_written(tmp_path, monkeypatch, call):
    path = tmp_path / "numbers.safetensors"
    artifacts.write_tensors(path, {"x": np.arange(3)})
    before = path.read_bytes()

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(artifacts.os if call == "fsync" else artifacts.Path, call, full)
    with pytest.raises(ArtifactError, match=r"numbers\.safetensors") as caught:
        artifacts.write_tensors(path, {"x": np.arange(9)})
    assert "room" in str(caught.value)
    assert path.read_bytes() == before
    assert listing(tmp_path) == ["numbers.safetensors"]


def test_a_real_limit_on_file_size_leaves_nothing_half_written(tmp_path):
    code = (
        "import resource, signal, sys\n"
        "from reweigh.files.artifacts import write_bytes\nfrom reweigh.errors import ArtifactError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))\n"
        "try:\n    write_bytes(sys.argv[1], b'x' * 100_000)\n"
        "except ArtifactError as error:\n    print('refused', 'written' in str(error))\n"
    )
    assert resource.RLIMIT_FSIZE is not None
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "big")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "refused True\n"), done.stderr
    assert listing(tmp_path) == []


def test_a_place_that_is_not_a_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=r"page\.json"):
        artifacts.write_json(tmp_path / "file" / "page.json", {})
    with pytest.raises(ArtifactError, match=r"rows\.jsonl"):
        artifacts.append_jsonl(tmp_path / "file" / "rows.jsonl", [{}])


def test_a_folder_of_ones_own_is_cleared_of_abandoned_files_alone(tmp_path):
    kept = [
        ".film.part",
        f".notes{artifacts.LEFTOVER}",
        f".x.XYZ{artifacts.LEFTOVER}",
        f"a.0a1b2c3d{artifacts.LEFTOVER}",
    ]
    for name in (*kept, f".record.json.0a1b2c3d{artifacts.LEFTOVER}"):
        (tmp_path / name).write_text("half")
    with artifacts.only_one(tmp_path):
        assert listing(tmp_path) == sorted([*kept, ".lock"])


def test_threads_that_write_leave_the_umask_alone(tmp_path):
    before = os.umask(0o027)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: artifacts.write_json(tmp_path / f"{i}.json", i), range(200)))
        assert os.umask(0o027) == 0o027
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}
    finally:
        os.umask(before)


def test_no_thread_can_see_another_umask(tmp_path, monkeypatch):
    """A file made while somebody else writes must not get rights that nobody gave."""
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("the umask belongs to all threads"))
    artifacts.write_json(tmp_path / "page.json", {})


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="needs links")
def test_a_lock_never_touches_what_it_finds(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("keep me")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(secret)
    with pytest.raises(InputError, match="link"), artifacts.only_one(tmp_path / "run"):
        pass
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / ".lock").write_text("mine")
    with artifacts.only_one(tmp_path / "mine"):
        pass
    assert (secret.read_text(), (tmp_path / "mine" / ".lock").read_text()) == ("keep me", "mine")


@pytest.mark.parametrize("place", ["file/run", "x" * 300])
def test_a_lock_that_cannot_be_made_is_an_error_that_names_it(tmp_path, place):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="written"), artifacts.only_one(tmp_path / place):
        pass


@given(VALUES)
def test_json_is_canonical(value):
    text = artifacts.to_json(value)
    assert json.loads(text) == value
    assert artifacts.to_json(json.loads(text)) == text
    assert artifacts.sha256_json(value) == artifacts.sha256_text(text)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_json_holds_no_impossible_number(tmp_path, number):
    with pytest.raises(ValueError):
        artifacts.write_json(tmp_path / "x.json", {"b0": number})
    assert listing(tmp_path) == []


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"", b"[1,]", b"[" * 200_000, b"1" * 5000])
def test_broken_json_is_named(tmp_path, content):
    path = tmp_path / "page.json"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"page\.json"):
        artifacts.read_json(path)


def test_missing_files_and_folders_are_named(tmp_path):
    for read in (artifacts.read_json, artifacts.read_jsonl, artifacts.read_tensors):
        with pytest.raises(ArtifactError, match="nothing"):
            read(tmp_path / "nothing")
    with pytest.raises(ArtifactError, match="read"):
        artifacts.read_json(tmp_path)


def test_tensors_come_back_and_bytes_depend_on_content_only(tmp_path):
    arrays = {
        "floats": np.linspace(0, 1, 7, dtype=np.float32).reshape(1, 7),
        "empty": np.zeros((2, 0), dtype=np.float32),
        "ints": np.arange(10, dtype=np.int64)[::2],
    }
    artifacts.write_tensors(tmp_path / "a", arrays)
    artifacts.write_tensors(tmp_path / "b", dict(reversed(arrays.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    found = artifacts.read_tensors(tmp_path / "a")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.99])
def test_cut_tensors_are_named(tmp_path, share):
    path = tmp_path / "x.safetensors"
    artifacts.write_tensors(path, {"x": np.arange(100)})
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ArtifactError, match="safetensors"):
        artifacts.read_tensors(path)


def test_rows_are_appended_and_a_torn_line_is_mended(tmp_path):
    path = tmp_path / "rows.jsonl"
    artifacts.append_jsonl(path, [{"a": 1}, {"a": "zwei\u2028"}])
    with path.open("ab") as file:
        file.write(b'{"a": 3')
    assert artifacts.read_jsonl(path) == [{"a": 1}, {"a": "zwei\u2028"}]
    artifacts.append_jsonl(path, [{"a": 4}])
    assert artifacts.read_jsonl(path) == [{"a": 1}, {"a": "zwei\u2028"}, {"a": 4}]


def test_a_whole_last_line_without_its_newline_is_kept(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"n": 1}\n{"n": 2}')
    assert artifacts.read_jsonl(path) == [{"n": 1}, {"n": 2}]
    artifacts.append_jsonl(path, [{"n": 3}])
    assert path.read_text() == '{"n": 1}\n{"n": 2}\n{"n": 3}\n'


def test_a_key_twice_is_refused(tmp_path):
    (tmp_path / "page.json").write_text('{"a": {"b": 1, "b": 2}}')
    with pytest.raises(ArtifactError, match="twice"):
        artifacts.read_json(tmp_path / "page.json")
    (tmp_path / "rows.jsonl").write_text('{"a": 1, "a": 1}\n')
    with pytest.raises(ArtifactError, match="twice"):
        artifacts.read_jsonl(tmp_path / "rows.jsonl")


def test_a_file_that_is_one_torn_line_starts_anew(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a"')
    assert artifacts.read_jsonl(path) == []
    artifacts.append_jsonl(path, [{"a": 1}])
    assert path.read_bytes() == b'{"a": 1}\n'


def test_a_row_that_is_not_json_adds_nothing(tmp_path):
    path = tmp_path / "rows.jsonl"
    with pytest.raises(ValueError):
        artifacts.append_jsonl(path, [{"a": 1}, {"a": math.nan}])
    assert not path.exists()


@pytest.mark.parametrize(("line", "message"), [(b"{]", "JSON"), (b"[1]", "line 2")])
def test_broken_rows_are_numbered(tmp_path, line, message):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"{}\n" + line + b"\n")
    with pytest.raises(ArtifactError, match=message):
        artifacts.read_jsonl(path)


def test_hashes_are_the_known_ones(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert artifacts.sha256_file(tmp_path / "x") == known
    assert artifacts.sha256_text("abc") == known
