"""One batch from images to inputs: what is left out, and what an error says."""

from __future__ import annotations

import pytest
from PIL import Image

from reweigh.calibration.ahead import prepare, read
from reweigh.calibration.corpus import CorpusImage
from reweigh.errors import CalibrationError, ImageError, InputError


def image(name, width=8):
    return CorpusImage(name, "0", lambda: Image.new("RGB", (width, 8)))


def broken(name):
    def fail():
        raise ImageError(f"{name} is cut", hint="mend it")

    return CorpusImage(name, "0", fail)


def widths(pictures):
    """Inputs that show which pictures they were made of; thin ones are refused."""
    found = [picture.size[0] for picture in pictures]
    if min(found) < 3:
        raise ValueError("too thin")
    return {"widths": found}


def test_only_usable_images_have_rows():
    batch = [image("a"), image("thin", 2), broken("cut"), image("b", 9), image("line", 1)]
    found = prepare([read(one) for one in batch], widths)
    assert found.keys == ["a#0", "b#0"]
    assert found.inputs == {"widths": [8, 9]}
    assert found.skipped == [
        {"key": "cut#0", "name": "cut", "reason": "cut is cut"},
        {
            "key": "thin#0",
            "name": "thin",
            "reason": "the model's processor refuses a picture of (2, 8) pixels (too thin)",
        },
        {
            "key": "line#0",
            "name": "line",
            "reason": "the model's processor refuses a picture of (1, 8) pixels (too thin)",
        },
    ]


@pytest.mark.parametrize("batch", [[broken("cut")], [image("thin", 1)], [broken("cut"), image("thin", 1)]])
def test_a_batch_without_a_usable_image_has_no_inputs(batch):
    found = prepare([read(one) for one in batch], widths)
    assert (found.keys, found.inputs) == ([], {})
    assert [skip["name"] for skip in found.skipped] == [one.name for one in batch]


@pytest.mark.parametrize("kind", [TypeError, RuntimeError, IndexError, ImportError])
def test_an_error_of_the_processor_names_the_images(kind):
    def fail(pictures):
        raise kind("what the processor says")

    with pytest.raises(CalibrationError, match=kind.__name__) as caught:
        prepare([read(one) for one in (image("a"), broken("cut"), image("b"))], fail)
    assert isinstance(caught.value.__cause__, kind)
    assert "calibrate" in str(caught.value)


def test_pictures_that_are_refused_only_together_are_named():
    def fail(pictures):
        if len(pictures) > 1:
            raise ValueError("shapes differ")
        return {}

    with pytest.raises(CalibrationError, match="ValueError"):
        prepare([read(one) for one in (image("a"), image("b"))], fail)


def test_an_error_while_looking_for_the_refused_one_names_the_images():
    def fail(pictures):
        raise ValueError("one of them") if len(pictures) > 1 else TypeError("this one")

    with pytest.raises(CalibrationError, match="TypeError"):
        prepare([read(one) for one in (image("a"), image("b"))], fail)


def test_errors_of_our_own_pass_as_they_are():
    def fail(pictures):
        raise InputError("the prompt holds no image", hint="put it in")

    with pytest.raises(InputError, match="no image"):
        prepare([read(image("a"))], fail)


def test_what_is_not_a_refusal_to_read_is_raised():
    def fail():
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="disk"):
        read(CorpusImage("a", "0", fail))
