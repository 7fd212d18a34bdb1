"""The detector: strengths of given words, looked up without running the text through the model."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reweigh
import twin
from checkpoints import VOCABULARY, picture
from reweigh.errors import ArtifactError, ImageError, InputError, MismatchError
from reweigh.files.artifacts import to_json
from reweigh.method.check import Checked, CheckedToken

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
            assert (token.evidence, token.strength) == (None, None)
        else:
            assert token.evidence == pytest.approx(dmrr[token.token], rel=1e-5)
            assert token.strength == pytest.approx(strengths[token.token], abs=1e-5)
        seen.add(reference is None)
    assert seen == {True, False}


def test_weak_words_reach_the_threshold():
    tokens = [
        CheckedToken(i, word, at, at + 1, None, None, s)
        for i, (word, at, s) in enumerate([("a", 0, 0.4), ("b", 2, None), ("c", 4, 0.5), ("d", 6, 1.0)])
    ]
    found = Checked("a b c d", tuple(tokens))
    assert [word.text for word in found.weak()] == ["c", "d"]
    assert [word.text for word in found.weak(0.75)] == ["d"]


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
    with torch.no_grad(), attached.request(trace=True) as request, attached:
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
        known = [token.strength for token in inside if token.strength is not None]
        assert word.strength == (known[0] if known else None)


def pieces(*parts):
    """Checked text from (text, strength) pieces."""
    tokens, text = [], ""
    for number, (piece, strength) in enumerate(parts):
        tokens.append(CheckedToken(number, piece, len(text), len(text) + len(piece), None, None, strength))
        text += piece
    return Checked(text, tuple(tokens))


def test_a_token_may_end_in_white_space():
    words = pieces((" sofa", 0.5), (".\n", None), ("The", 1.0), (" ", None), ("  cat", None)).words()
    assert [(word.text, word.strength) for word in words] == [("sofa.", 0.5), ("The", 1.0), ("cat", None)]


def test_pieces_of_one_character_are_one_word():
    dog = "\U0001f436"
    tokens = tuple(CheckedToken(i, dog, 2, 3, None, None, s) for i, s in enumerate([None, 0.25, 1.0]))
    found = Checked(f"a {dog}!", (CheckedToken(9, "a", 0, 1, None, None, None), *tokens))
    assert [(word.text, word.strength) for word in found.words()] == [("a", None), (dog, 0.25)]


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
    assert set(page["tokens"][0]) == {"token", "text", "start", "end", "dmrr", "b", "s"}
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
