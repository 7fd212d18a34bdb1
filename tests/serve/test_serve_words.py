"""The page judges words as the detector does: its script is run by node and compared with Python."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import reweigh
from reweigh.method.check import THRESHOLD, Checked, CheckedToken
from reweigh.text import NEVER_JUDGED

WORDS = Path(reweigh.__file__).parent / "serve" / "static" / "js" / "words.js"
STATES = {"fine": "supported", "unsupported": "unsupported", "unjudged": "not judged", "plain": "not judged"}
TEXT = "The dog's boat, 2 (zebras) without it sub-marine naïve"
PIECES = [
    ("The", 0.1), (" dog", 0.7), ("'s", 0.1), (" boat", 0.69), (",", 0.2), (" ", None), ("2", 0.1), (" (", None),
    ("z", 1.2), ("ebras", 0.1), (")", None), (" without", 0.3), (" it", None), (" sub", None), ("-", 0.1),
    ("marine", 2.0), (" naïve", None),
]  # fmt: skip


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_page_judges_words_as_the_detector_does():
    tokens, at = [], 0
    for number, (piece, ratio) in enumerate(PIECES):
        known = (None, None, None) if ratio is None else (ratio * 0.01, 0.01, 1 - min(ratio, 1))
        tokens.append(CheckedToken(number, piece, at, at + len(piece), *known))
        at += len(piece)
    checked = Checked(TEXT, tuple(tokens))
    assert "".join(piece for piece, _ in PIECES) == TEXT
    told = checked.to_json()
    rules = {"threshold": THRESHOLD, "function_words": sorted(NEVER_JUDGED)}
    script = f"""
        import {{ cut, judge, judgeBy }} from "{WORDS.as_uri()}";
        judgeBy({json.dumps(rules)});
        const words = cut({json.dumps(TEXT)}, {json.dumps(told["tokens"])});
        console.log(JSON.stringify(words.map((word) => [word.text, judge(word)])));
    """
    done = subprocess.run(
        ["node", "--input-type=module", "-e", script], capture_output=True, text=True, timeout=60, check=True
    )
    shown = {text: STATES[kind] for text, kind in json.loads(done.stdout)}
    bare = {word["text"].strip("(),"): word["state"] for word in told["words"]}
    # the page cuts at punctuation, so that these are its words, too
    compared = {"The", "boat", "2", "zebras", "without", "it", "naïve"}
    assert {word: shown[word] for word in compared} == {word: bare[word] for word in compared}
    assert set(bare.values()) == set(STATES.values())
