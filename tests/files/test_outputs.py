"""Replacing outputs: our own are replaced, everything else is refused by name until overwriting is allowed."""

from __future__ import annotations

import pytest

from reweigh.errors import InputError
from reweigh.files import outputs
from reweigh.files.artifacts import sha256_text, write_json
from reweigh.files.outputs import RECORD, claim, is_own, write_output, write_sealed_output
from reweigh.files.seals import read_sealed


def test_our_own_output_is_replaced(tmp_path):
    page = tmp_path / "page.md"
    write_output(page, "one")
    claim([page])
    write_output(page, b"two")
    assert page.read_text() == "two"
    assert is_own(page)


def test_a_file_of_the_users_is_refused_and_kept(tmp_path, overwriting):
    page = tmp_path / "page.md"
    page.write_text("mine")
    with pytest.raises(InputError, match=r"page\.md"):
        write_output(page, "ours")
    with pytest.raises(InputError, match="--overwrite"):
        claim([page])
    assert page.read_text() == "mine"
    with overwriting():
        claim([page])
    assert page.read_text() == "mine", "a claim replaces nothing yet"
    write_output(page, "ours")
    write_output(page, "ours again")
    assert page.read_text() == "ours again"


def test_overwriting_covers_the_file_as_it_is_now(tmp_path, overwriting):
    page = tmp_path / "page.md"
    page.write_text("mine")
    with overwriting():
        claim([page])
    page.write_text("mine, and newer")
    with pytest.raises(InputError, match=r"page\.md"):
        write_output(page, "ours")
    assert page.read_text() == "mine, and newer"


def test_one_foreign_file_keeps_all_others_unclaimed(tmp_path, overwriting):
    (tmp_path / "a.md").write_text("mine")
    (tmp_path / "b.md").mkdir()
    with pytest.raises(InputError, match=r"b\.md exists and is a folder"), overwriting():
        claim([tmp_path / "a.md", tmp_path / "b.md"])
    with pytest.raises(InputError, match=r"a\.md"):
        claim([tmp_path / "a.md"])


def test_an_output_that_was_edited_is_the_users(tmp_path):
    page = tmp_path / "page.md"
    write_output(page, "ours")
    page.write_text("ours, with a remark")
    with pytest.raises(InputError, match="changed"):
        claim([page])


def test_a_sealed_page_is_ours_and_a_plain_one_is_not(tmp_path):
    write_sealed_output(tmp_path / "a.json", {"x": 1})
    write_json(tmp_path / "b.json", {"x": 1})
    claim([tmp_path / "a.json", tmp_path / "absent.json"])
    assert not (tmp_path / RECORD).exists(), "a seal vouches for its own page"
    for refused in (lambda path: claim([path]), lambda path: write_sealed_output(path, {})):
        with pytest.raises(InputError, match=r"b\.json"):
            refused(tmp_path / "b.json")


def test_folders_and_links_are_never_ours(tmp_path, overwriting):
    write_output(tmp_path / "page.md", "ours")
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "link.md").symlink_to(tmp_path / "page.md")
    (tmp_path / "dangling.md").symlink_to(tmp_path / "nowhere")
    for name in ("folder.md", "link.md", "dangling.md"):
        with pytest.raises(InputError, match=name):
            claim([tmp_path / name])
    with overwriting():
        claim([tmp_path / "link.md"])
    write_output(tmp_path / "link.md", "new")
    assert not (tmp_path / "link.md").is_symlink()
    assert (tmp_path / "page.md").read_text() == "ours", "what a link leads to is not written to"


def test_an_altered_record_vouches_for_nothing(tmp_path):
    write_output(tmp_path / "page.md", "ours")
    (tmp_path / "other.md").write_text("mine")
    text = (tmp_path / RECORD).read_text()
    (tmp_path / RECORD).write_text(text.replace("page.md", "other.md"))
    with pytest.raises(InputError, match=r"page\.md"):
        claim([tmp_path / "page.md"])


@pytest.mark.parametrize("last", ["before the rename", "after it"])
def test_a_kill_while_writing_leaves_an_output_that_is_ours(tmp_path, monkeypatch, last):
    """The record comes first and knows both contents, whichever the kill leaves."""
    page = tmp_path / "page.md"
    write_output(page, "one")
    kept = {}

    def allow(path, mark):
        wrote(path, mark)
        kept.update(read_sealed(tmp_path / RECORD)["files"])
        if last == "before the rename":
            raise KeyboardInterrupt

    wrote = outputs._allow
    monkeypatch.setattr(outputs, "_allow", allow)
    if last == "before the rename":
        with pytest.raises(KeyboardInterrupt):
            write_output(page, "two")
    else:
        write_output(page, "two")
    assert kept["page.md"] == [sha256_text("one"), sha256_text("two")]
    assert is_own(page)
