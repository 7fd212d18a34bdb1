"""The pictures of docs/method.md show what the shipped model and table give."""

from __future__ import annotations

import re
import runpy

import pytest
from blocks import ROOT


@pytest.mark.slow
def test_the_three_pictures_are_what_the_script_draws() -> None:
    drawn = runpy.run_path(str(ROOT / "scripts" / "method_pictures.py"))["draw"]()
    assert set(drawn) == {"measure.svg", "register.svg", "intervene.svg"}
    for name, drawing in drawn.items():
        kept = (ROOT / "docs" / "images" / name).read_text(encoding="utf-8")
        words = [re.findall(r"<text[^>]*>(.*?)</text>", text) for text in (drawing, kept)]
        assert len(words[0]) >= 3
        assert words[0] == words[1], "run: python scripts/method_pictures.py"
