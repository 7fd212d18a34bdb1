"""A broken decoder never passes: the error names the plugin's file and line, and what was wrong."""

from __future__ import annotations

import re

import pytest

from reweigh.world.scenes import scene

TEMPLATE = """
import torch
from reweigh.rivals import Decoder

class Broken(Decoder):
    name = "broken"
    steps = 0

    def {hook}
"""
BROKEN = {
    "NaN": ("edit(self, forward):\n        return forward.logits * float('nan')", 9, "NaN in row 0"),
    "nothing left": (
        "edit(self, forward):\n        return torch.full_like(forward.logits, -torch.inf)",
        9,
        "minus infinity for every token",
    ),
    "infinite": (
        "edit(self, forward):\n        return forward.logits.log().nan_to_num(0) + torch.inf",
        9,
        "plus infinity",
    ),
    "too narrow": (
        "edit(self, forward):\n        return forward.logits[..., :-1]",
        9,
        r"shape \(1, 1, \d+\) for a pass of shape \(1, 1, \d+\)",
    ),
    "no batch": ("edit(self, forward):\n        return forward.logits[0]", 9, r"shape \(1, \d+\)"),
    "another type": ("edit(self, forward):\n        return forward.logits.long()", 9, "torch.int64"),
    "another device": ("edit(self, forward):\n        return forward.logits.to('meta')", 9, "logits on meta"),
    "no tensor": ("edit(self, forward):\n        return forward.logits.tolist()", 9, "a list, not a tensor"),
    "later": (
        "edit(self, forward):\n        self.steps += 1\n"
        "        return forward.logits * float('nan' if self.steps > 1 else 1)",
        9,
        "NaN in row 0",
    ),
    "typo": ("edit(self, forward):\n        return forward.logitz", 10, "AttributeError.*logitz"),
    "typo before": ("before(self, forward):\n        forward.scratch = amount", 10, "NameError.*amount"),
    "signature": (
        "__init__(self, anatomy, processor=None):\n        super().__init__(self, anatomy, processor)",
        10,
        "TypeError",
    ),
}


@pytest.fixture
def picture(tmp_path):
    scene("evaluation", index=0).image().save(tmp_path / "a.png")
    return tmp_path / "a.png"


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_decoder_is_named_with_its_line(name, cli, picture, tmp_path, sandbox):
    hook, line, message = BROKEN[name]
    (tmp_path / "mine.py").write_text(TEMPLATE.format(hook=hook))
    done = cli(
        "describe",
        "world",
        picture,
        "--decoder",
        "broken",
        "--plugin",
        tmp_path / "mine.py",
        "--max-new-tokens",
        4,
    )
    assert (done.code, done.out) == (1, "")
    assert f"mine.py, line {line}" in done.err
    assert re.search(message, done.err)
    assert "bug in reweigh" not in done.err
