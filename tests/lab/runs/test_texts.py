"""What no figure shows: the shares are absolute, so a base that is cut too hides nothing."""

from __future__ import annotations

import pytest

from reweigh.lab.runs.texts import empty, unchanged, unfinished, warnings_about

WHOLE, CUT = "A dog runs on grass.", "A dog runs on the"


def test_unfinished_texts_are_counted():
    texts = [WHOLE, CUT, "yes", 'He said "stop now."']
    assert unfinished(texts) == pytest.approx(1 / 3)
    assert unfinished(["no"]) == unfinished([]) == 0.0


def test_texts_that_are_cut_everywhere_are_named_for_every_arm():
    [said] = warnings_about({"Base": [CUT] * 4, "VCD": [CUT] * 3 + [WHOLE]}, " on objects")
    assert said.startswith("Unfinished texts on objects: Base 100%, VCD 75%.")
    assert "--max-new-tokens" in said
    assert warnings_about({"Base": [WHOLE] * 19 + [CUT]}) == [], "one in twenty may be the model's own way"


def test_a_single_empty_text_is_named():
    assert warnings_about({"Base": [WHOLE], "Mine": [WHOLE] * 3 + [" "]}) == ["Empty texts: Mine 25%."]
    assert empty([]) == 0.0


def test_texts_are_compared_by_their_record():
    base = {1: WHOLE, 2: CUT, 3: ""}
    assert unchanged({3: "", 2: "another", 1: WHOLE}, base) == pytest.approx(2 / 3)
    assert unchanged({}, base) == 0.0
