"""A detector that looks boxes up in a file: what is annotated in a picture is found, nothing else is.

With the annotations that an answer is judged by it is an oracle, the bound of what any detector could do. The file has one
JSON object to a line, images by their path beside it and boxes as fractions of the picture:

    {"image": "dog.png", "objects": [{"words": ["dog", "puppy"], "box": [0.1, 0.2, 0.6, 0.9]}]}
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from reweigh.errors import ArtifactError, InputError
from reweigh.files.artifacts import read_jsonl
from reweigh.images import pixels_hash, read_image
from reweigh.rivals.halc.fields import Box
from reweigh.rivals.tools.entities import singular

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIX = ".jsonl"
Named = list[tuple[str, Box]]


class AnnotatedBoxes:
    """Boxes of a word by the annotations of its picture, which is known by its pixels; its mirror image is known, too.

    A comparison warms up on mirrored pictures, and their boxes follow from those of the file.
    """

    def __init__(self, path: str | Path) -> None:
        from PIL.ImageOps import mirror

        self.path = Path(path)
        self._known: dict[str, Named] = {}
        for number, row in enumerate(read_jsonl(self.path), 1):
            try:
                picture = read_image(self.path.parent / row["image"])
                found = [
                    (singular(word), _box(one["box"])) for one in row["objects"] for word in one["words"]
                ]
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise ArtifactError(
                    f"{self.path}, line {number}, is no picture with its boxes ({error!r})",
                    hint='{"image": "dog.png", "objects": [{"words": ["dog"], "box": [0.1, 0.2, 0.6, 0.9]}]}',
                ) from error
            self._known[pixels_hash(picture)] = found
            self._known[pixels_hash(mirror(picture))] = [
                (word, (1 - right, top, 1 - left, bottom)) for word, (left, top, right, bottom) in found
            ]

    def __call__(self, picture: Image, word: str) -> list[Box]:
        found = self._known.get(pixels_hash(picture))
        if found is None:
            raise InputError(
                f"{self.path} knows nothing of a picture of {picture.width}x{picture.height} pixels that was shown",
                hint="annotate every picture that is described, or take a detector",
            )
        return [box for name, box in found if name == singular(word)]


def _box(given: Any) -> Box:
    left, top, right, bottom = (float(edge) for edge in given)
    if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
        raise ValueError(f"the box {given} is not left, top, right, bottom as fractions")
    return left, top, right, bottom
