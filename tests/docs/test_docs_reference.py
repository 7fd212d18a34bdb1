"""The reference pages leave nothing out: every public name is on docs/api.md, every rival is cited in docs/decoders.md."""

from __future__ import annotations

import re

import pytest
from blocks import ROOT

import reweigh
from reweigh.rivals import DECODERS

OWN = {"base", "greedy", "beam", "nucleus", "sampling", "cut", "reweigh"}
"""Plain baselines, and the method that the page's first part cites."""


@pytest.mark.parametrize("name", sorted(set(reweigh.__all__) - {"__version__"}))
def test_a_public_name_is_in_the_reference(name: str) -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    home = reweigh._PUBLIC[name]
    assert re.search(rf"^::: {re.escape(home)}(\.{name})?$", page, flags=re.MULTILINE)


def test_every_rival_is_cited() -> None:
    rows = (ROOT / "docs" / "decoders.md").read_text(encoding="utf-8").split("## Papers to cite")[1]
    cited = {
        name for line in rows.splitlines() if "](http" in line for name in re.findall(r"`([\w-]+)`", line)
    }
    assert set(DECODERS) - OWN <= cited
