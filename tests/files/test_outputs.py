"""Replacing outputs: our own are replaced, everything else is refused by name until it is forced."""

from __future__ import annotations

import pytest

from reweigh.errors import InputError
from reweigh.files.artifacts import write_json
from reweigh.files.outputs import RECORD, is_own, require_replaceable, write_output
from reweigh.files.seals import write_sealed


def test_our_own_output_is_replaced(tmp_path):
    page = tmp_path / "page.md"
    write_output(page, "one")
    write_output(page, "two")
    assert page.read_text() == "two"
    assert is_own(page)


def test_a_file_of_the_users_is_refused_and_kept(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("mine")
    with pytest.raises(InputError, match=r"page\.md"):
        write_output(page, "ours")
    assert page.read_text() == "mine"
    write_output(page, "ours", force=True)
    write_output(page, "ours again")
    assert page.read_text() == "ours again"


def test_an_output_that_was_edited_is_the_users(tmp_path):
    page = tmp_path / "page.md"
    write_output(page, "ours")
    page.write_text("ours, with a remark")
    with pytest.raises(InputError, match="changed"):
        require_replaceable([page])


def test_a_sealed_page_is_ours_and_a_plain_one_is_not(tmp_path):
    write_sealed(tmp_path / "a.json", {"x": 1})
    write_json(tmp_path / "b.json", {"x": 1})
    require_replaceable([tmp_path / "a.json", tmp_path / "absent.json"])
    with pytest.raises(InputError, match=r"b\.json"):
        require_replaceable([tmp_path / "b.json"])


def test_folders_and_links_are_never_ours(tmp_path):
    write_output(tmp_path / "page.md", "ours")
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "link.md").symlink_to(tmp_path / "page.md")
    (tmp_path / "dangling.md").symlink_to(tmp_path / "nowhere")
    for name in ("folder.md", "link.md", "dangling.md"):
        with pytest.raises(InputError, match=name):
            require_replaceable([tmp_path / name])


def test_an_altered_record_vouches_for_nothing(tmp_path):
    write_output(tmp_path / "page.md", "ours")
    (tmp_path / "other.md").write_text("mine")
    text = (tmp_path / RECORD).read_text()
    (tmp_path / RECORD).write_text(text.replace("page.md", "other.md"))
    with pytest.raises(InputError, match=r"page\.md"):
        require_replaceable([tmp_path / "page.md"])
