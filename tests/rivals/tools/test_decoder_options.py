"""Options are refused by name and by kind before a model is touched, whatever they are."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypedDict

import pytest

import reweigh
from checkpoints import picture
from reweigh.errors import InputError, ReweighError
from reweigh.options import parse_options
from reweigh.rivals import DECODERS, Decoder, check_options
from reweigh.rivals.tools.options import fits, kind

NEEDS_A_FOLDER = ("reweigh", "asd", "vti", "nullu")
NEEDED = {
    "halc": {"detect": lambda image, word: [], "match": lambda image, texts: [0.0] * len(texts)},
    "projectaway": {"erase": ["image"], "image_layer": 1},
}
ODD = ["abc", -1, 1.5, True, [1], math.inf, {}]


@pytest.mark.parametrize(
    ("hint", "right", "wrong"),
    [
        (bool, [True, False], ["False", 0, None]),
        (int, [3], [3.0, True, "3", math.inf]),
        (float, [3, 0.5], [math.nan, math.inf, True, "0.5"]),
        (int | None, [None, 3], ["none", 3.5]),
        (str | Path, ["a", Path("a")], [3, None]),
        (str | Sequence[int], ["low", [0, 2], range(3), ()], [2, [0.5], {0: 1}]),
        (Callable[[str], bool] | Sequence[str], [str.isalpha, ["dog"]], ["dog", [1], None]),
    ],
)
def test_a_value_is_of_its_annotated_kind(hint, right, wrong):
    assert all(fits(value, hint) for value in right)
    assert not any(fits(value, hint) for value in wrong)
    assert kind(hint)


class Asked(Protocol):
    def record(self) -> None: ...


class Named(TypedDict):
    size: int


@pytest.mark.parametrize("hint", [Asked, Named, Asked | None])
def test_a_kind_that_only_type_checkers_can_ask_takes_anything(hint):
    assert fits(object(), hint)
    assert kind(hint)


@pytest.mark.parametrize("name", [name for name in DECODERS if name not in NEEDS_A_FOLDER])
def test_odd_values_are_refused_by_name_or_can_be_used(name, loaded):
    """None of them fails amid a generation, or with an error that names no option."""
    model, processor = loaded("llava")
    needed = NEEDED.get(name, {})
    for option, given in inspect.signature(DECODERS[name]).parameters.items():
        for value in ODD if given.kind is given.KEYWORD_ONLY else ():
            try:
                session = reweigh.decoder(name, model, processor, **{**needed, option: value})
                assert isinstance(session.describe(picture(1), max_new_tokens=1), str)
            except ReweighError as error:
                assert option.split("_")[0] in str(error) or repr(value) in str(error)  # noqa: PT017


def test_false_on_a_command_line_is_not_true():
    for given in ("force=False", "force=no", "force=0"):
        with pytest.raises(InputError, match="force"):
            check_options("vti", DECODERS["vti"], parse_options(["vectors=a", given]))
    with pytest.raises(InputError, match="force=false"):
        check_options("vti", DECODERS["vti"], parse_options(["vectors=a", "force=False"]))
    check_options("vti", DECODERS["vti"], parse_options(["vectors=a", "force=false", "lam=0.5"]))


def test_a_decoder_whose_annotations_cannot_be_read_is_checked_by_names_alone():
    class Foreign(Decoder):
        def __init__(self, anatomy, processor=None, *, size: Unknown = 3, plain=1):  # noqa: F821
            super().__init__(anatomy, processor)

    check_options("foreign", Foreign, {"size": "any", "plain": None})
    with pytest.raises(InputError, match="did you mean size"):
        check_options("foreign", Foreign, {"sise": 3})
