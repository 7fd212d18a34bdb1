"""Captions of a folder of photographs, in the formats of Flickr8k and COCO, and the split each picture belongs to."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reweigh.errors import InputError
from reweigh.world.vocabulary import mentions

SPLITS = {"dev": 0.05, "calibration": 0.10, "test": 0.15}
"""Share of the pictures in each split; the rest is for training."""
SYNONYMS = {
    "person": [
        "boy",
        "girl",
        "child",
        "children",
        "kid",
        "baby",
        "toddler",
        "lady",
        "guy",
        "player",
        "rider",
        "skier",
        "surfer",
    ],
    "dog": ["puppy", "puppies"],
    "car": ["suv", "taxi"],
}
"""Further words for objects, as captions of photographs use them."""


def read_captions(path: Path) -> dict[str, list[str]]:
    """Return the captions of each picture by file name.

    Formats: COCO's ``captions_*.json``; ``name.jpg#0<TAB>caption`` (Flickr8k.token.txt); ``image,caption`` with a header.

    Raises:
        InputError: The file has none of these formats, or no caption of three words or more.
    """
    if not path.is_file():
        raise InputError(f"{path} does not exist", hint="pass the file with the captions")
    rows = _coco(path) if path.suffix == ".json" else _lines(path)
    captions: dict[str, list[str]] = {}
    for name, text in rows:
        sentence = clean(text)
        if len(sentence.split()) >= 3:
            captions.setdefault(name, []).append(sentence)
    if not captions:
        raise InputError(
            f"{path} has no caption", hint="Flickr8k's token or CSV file, or COCO's captions_*.json"
        )
    return captions


def clean(text: str) -> str:
    """Return a caption as one sentence with a capital letter and a full stop.

    Examples:
        >>> clean(" a dog 's ball , on grass . ")
        "A dog's ball, on grass."
    """
    text = re.sub(r"\s+", " ", text).strip(' .,"')
    text = re.sub(r" (?=[,;'])", "", text)
    return text[:1].upper() + text[1:] + "." if text else ""


def split_of(name: str) -> str:
    """Return the split of a picture; it depends on the file's name only, so that it holds in every run."""
    place = int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) / 16**8
    for split, share in SPLITS.items():
        if place < share:
            return split
        place -= share
    return "train"


def truth(images: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Return a line of a truth file for each picture: the objects that any of its captions names."""
    extra = {word: name for name, words in SYNONYMS.items() for form in words for word in (form, form + "s")}
    lines: list[dict[str, Any]] = []
    for name, texts in images.items():
        text = " ".join(texts)
        named = {found for *_, found in mentions(text)}
        named |= {extra[word] for word in re.findall(r"[a-z]+", text.lower()) if word in extra}
        lines.append({"image": name, "objects": sorted(named)})
    if lines:
        lines[0]["synonyms"] = SYNONYMS
    return lines


def _coco(path: Path) -> Iterator[tuple[str, str]]:
    try:
        held = json.loads(path.read_text("utf-8"))
        names = {image["id"]: image["file_name"] for image in held["images"]}
        yield from ((names[one["image_id"]], one["caption"]) for one in held["annotations"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a COCO captions file: {error!r}") from None


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        if "\t" in lines.readline():
            lines.seek(0)
            parted = (line.rstrip("\r\n").partition("\t") for line in lines)
            yield from ((key.rpartition("#")[0] or key, text) for key, _, text in parted)
        else:
            yield from ((row[0], row[1]) for row in csv.reader(lines) if len(row) > 1)
