"""The table of families says what becomes of every type of the installed transformers."""

from __future__ import annotations

import runpy
import warnings

from blocks import ROOT

PAGE = runpy.run_path(str(ROOT / "scripts" / "families_page.py"))


def test_every_installed_type_is_on_the_page_as_it_is() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = PAGE["differences"]()
    assert found == [], "make the page anew with the newest release: python scripts/families_page.py"


def test_a_type_is_not_called_tested_unless_the_tests_build_it() -> None:
    tested = PAGE["tested_types"]()
    rows = PAGE["written"]()
    newer = set(rows) - set(PAGE["installed_types"]())  # types that the installed release does not have yet
    assert {kind for kind, row in rows.items() if "| tested |" in row} - newer <= tested
    assert PAGE["row_of"]("qwen2_vl", set())[0] == "structure found"
    assert PAGE["row_of"]("mllama", {"mllama"})[0] == "refused"
