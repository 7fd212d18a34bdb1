"""The detector: evidence of given words against their references, looked up without running the text."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reweigh
import twin
from checkpoints import VOCABULARY, picture
from reweigh.errors import ArtifactError, ImageError, InputError, MismatchError
from reweigh.files.artifacts import to_json
from reweigh.method import check as method
from reweigh.method.check import Checked, CheckedToken, State

TEXT = "A brown dog sleeps on the sofa.\n\nTwo clocks!"


@pytest.fixture(scope="module")
def llava(checkpoint):
    return twin.case(checkpoint("llava"))


@pytest.fixture(scope="module")
def table():
    return twin.table(VOCABULARY)


def check(case, table, text=TEXT, image=None, **options):
    image = picture(1, (70, 50)) if image is None else image
    return reweigh.check(case.model, case.processor, image, text, table=table, **options)


def test_every_token_has_its_twins_strength(llava, table):
    found = check(llava, table)
    dmrr = twin.evidence(llava.model, llava.inputs([1]), table.layer)[0]
    strengths = twin.strengths(table, dmrr, VOCABULARY)
    ids = llava.processor.tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    assert [token.token for token in found.tokens] == ids
    seen = set()
    for token in found.tokens:
        reference = table.reference(token.token)
        assert token.reference == reference
        assert token.text == TEXT[token.start : token.end]
        if reference is None:
            assert (token.evidence, token.strength, token.ratio) == (None, None, None)
            assert token.state() is State.NOT_JUDGED
        else:
            assert token.evidence == pytest.approx(dmrr[token.token], rel=1e-5)
            assert token.strength == pytest.approx(strengths[token.token], abs=1e-5)
            assert token.ratio == pytest.approx(dmrr[token.token] / reference, rel=1e-5)
        seen.add(reference is None)
    assert seen == {True, False}


def test_a_text_without_spaces_is_one_word_made_once(monkeypatch):
    """Pieces are gathered and joined at the end; a word copied for each of its pieces takes quadratic time."""
    made, real = [], method.CheckedWord
    monkeypatch.setattr(method, "CheckedWord", lambda *parts: made.append(parts) or real(*parts))
    (word,) = pieces(*[("\u732b", 0.5)] * 3_000).words()
    assert (len(made), len(word.tokens), len(word.text)) == (1, 3_000, 3_000)


def test_each_token_is_compared_once():
    compared = []
    known = SimpleNamespace(reference=lambda token: compared.append(token) or 0.5, b0=1.0)
    places = [(at, at + 1) for at in range(1_000)]
    found = method.check_tokens("ab" * 500, [5, 6] * 500, places, torch.rand(99), known)
    assert (len(found.tokens), sorted(compared)) == (1_000, [5, 6])


def test_a_word_is_unsupported_below_its_share_of_the_usual():
    found = pieces((" dog", 0.7), (" cat", 0.69), (" submarine", None), (" the", 0.1), ("!", 0.1))
    said = {word.text: word.state() for word in found.words()}
    assert said == {"dog": "supported", "cat": "unsupported", "submarine": "not judged", "the!": "not judged"}
    assert [word.text for word in found.unsupported()] == ["cat"]
    assert [word.text for word in found.unsupported(0.71)] == ["dog", "cat"]
    assert [word.text for word in found.unsupported(all_words=True)] == ["cat", "the!"]
    assert [word.text for word in found.not_judged()] == ["submarine"]


def test_strength_does_not_decide():
    """A word of high evidence just below its reference has full strength, and is there all the same."""
    token = CheckedToken(0, "beach", 0, 5, 0.09, 0.1, 1.0)
    assert Checked("beach", (token,)).unsupported() == []


def test_the_piece_that_begins_a_word_judges_it():
    def judged(*parts):
        (word,) = pieces(*parts).words()
        return word.ratio, word.state()

    assert judged(("sub", None), ("mar", 0.1), ("ine", 2.0)) == (None, State.NOT_JUDGED)
    assert judged(("p", 0.4), ("izza", 2.0)) == (0.4, State.UNSUPPORTED)
    assert judged(("(", 0.1), ("dog", 1.5), (")", 0.1)) == (1.5, State.SUPPORTED)
    assert judged(("“", None), ("dog", 0.2)) == (0.2, State.UNSUPPORTED)


def test_without_a_text_the_models_own_description_is_checked(llava, table):
    shown = picture(1, (70, 50))
    said = reweigh.decoder("base", llava.model, llava.processor).describe(shown)
    assert check(llava, table, None) == check(llava, table, said)
    with pytest.raises(ArtifactError):
        check(llava, "no/such/table", None)


def test_the_strengths_are_those_of_the_edit(llava, table):
    import torch

    inputs = llava.inputs([1])
    attached = reweigh.attach(llava.model, llava.processor, table=table, beta=1.0)
    with torch.no_grad(), attached.using(trace=True) as request:
        llava.model.generate(**inputs, do_sample=False, max_new_tokens=4)
    edited = {row.token: row for step in request.trace.steps() for row in step.candidates}
    text = llava.processor.tokenizer.decode(list(edited))
    compared = 0
    for token in check(llava, table, text).tokens:
        if token.token in edited:
            row = edited[token.token]
            assert (token.evidence, token.reference) == (row.evidence, pytest.approx(row.reference))
            compared += 1
    assert compared > 3


def test_words_are_what_a_reader_sees(llava, table):
    found = check(llava, table)
    assert [word.text for word in found.words()] == TEXT.split()
    for word in found.words():
        assert TEXT[word.start : word.end] == word.text
        inside = [token for token in found.tokens if token.start < word.end and token.end > word.start]
        assert word.judge is inside[0]
        known = [token.strength for token in inside if token.strength is not None]
        assert word.strength == (known[0] if known else None)


def pieces(*parts):
    """Checked text from pieces and their evidence, where 1 is usual."""
    tokens, text = [], ""
    for number, (piece, ratio) in enumerate(parts):
        known = (None, None, None) if ratio is None else (ratio, 1.0, max(1 - ratio, 0.0))
        tokens.append(CheckedToken(number, piece, len(text), len(text) + len(piece), *known))
        text += piece
    return Checked(text, tuple(tokens))


def test_a_token_may_end_in_white_space():
    words = pieces((" sofa", 0.5), (".\n", None), ("The", 1.0), (" ", None), ("  cat", None)).words()
    assert [(word.text, word.ratio) for word in words] == [("sofa.", 0.5), ("The", 1.0), ("cat", None)]


def test_pieces_of_one_character_are_one_word():
    dog = "\U0001f436"
    tokens = tuple(CheckedToken(i, dog, 2, 3, None, None, s) for i, s in enumerate([None, 0.25, 1.0]))
    found = Checked(f"a {dog}!", (CheckedToken(9, "a", 0, 1, None, None, None), *tokens))
    assert [(word.text, word.judge.token) for word in found.words()] == [("a", 9), (dog, 0)]


@given(
    st.lists(
        st.tuples(st.text("ab \n.", min_size=1, max_size=4), st.none() | st.floats(0, 1)),
        min_size=1,
        max_size=8,
    )
)
def test_words_never_overlap_nor_hold_outer_white_space(parts):
    found = pieces(*parts)
    end = 0
    for word in found.words():
        assert word.start >= end
        assert word.text == found.text[word.start : word.end] == word.text.strip()
        end = word.end
    # no character that can be seen is lost
    assert "".join("".join(word.text.split()) for word in found.words()) == "".join(found.text.split())


def test_any_text_of_any_script_can_be_checked(llava, table):
    text = "naïve 🐶🐶 дом 日本"
    found = check(llava, table, text)
    assert [word.text for word in found.words()] == text.split()


def test_json_is_plain(llava, table):
    page = json.loads(to_json(check(llava, table).to_json()))
    assert page["text"] == TEXT
    assert set(page["tokens"][0]) == {"token", "text", "start", "end", "dmrr", "b", "s", "ratio", "state"}
    assert set(page["words"][0]) == {"text", "start", "end", "s", "ratio", "state"}
    assert page["threshold"] == 0.7
    assert [word["text"] for word in page["words"]] == TEXT.split()


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_text_is_refused(llava, table, text):
    with pytest.raises(InputError, match="empty"):
        check(llava, table, text)


def test_bad_images_tables_and_layers_are_refused(llava, table, tmp_path):
    with pytest.raises(ImageError, match="exist"):
        check(llava, table, image=tmp_path / "no.png")
    with pytest.raises(ArtifactError, match="reference table"):
        check(llava, tmp_path)
    with pytest.raises(InputError, match="layer 9"):
        check(llava, table, layer=9)
    with pytest.raises(MismatchError, match="layer 2"):
        check(llava, table, layer=1)
    with pytest.raises(InputError, match="no image"):
        check(llava, table, template="USER: {prompt}")


def test_a_processor_without_a_fast_tokenizer_is_refused(llava, table):
    class Slow:
        tokenizer = None

    with pytest.raises(InputError, match="tokenizer"):
        reweigh.check(llava.model, Slow(), picture(1), TEXT, table=table)
