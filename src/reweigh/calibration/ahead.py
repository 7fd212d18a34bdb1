"""Reading images and building inputs ahead of the model; an image that cannot be used is skipped, with the reason."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from reweigh.calibration.corpus import CorpusImage
from reweigh.errors import CalibrationError, ImageError, ReweighError

if TYPE_CHECKING:
    from PIL.Image import Image

Item = TypeVar("Item")
Read = TypeVar("Read")
Built = TypeVar("Built")

READERS = min(8, os.cpu_count() or 1)
"""Reading threads; their number affects speed only."""


def build_ahead(
    batches: Iterable[Sequence[Item]], read: Callable[[Item], Read], build: Callable[[list[Read]], Built]
) -> Generator[Built, None, None]:
    """Yield ``build([read(item) for item in batch])`` for each batch in order, preparing the next one meanwhile.

    An error is raised in its batch's turn. Close the generator to end its threads: pending work is dropped, running work
    is waited for.
    """
    readers = ThreadPoolExecutor(READERS, thread_name_prefix="reweigh-read")
    builder = ThreadPoolExecutor(1, thread_name_prefix="reweigh-build")
    ahead: Future[Built] | None = None
    try:
        for batch in batches:
            ready, ahead = ahead, builder.submit(lambda own: build(list(readers.map(read, own))), batch)
            if ready is not None:
                yield ready.result()
        if ahead is not None:
            yield ahead.result()
    finally:
        readers.shutdown(wait=False, cancel_futures=True)  # first, so that a build waiting for them ends
        builder.shutdown(wait=True, cancel_futures=True)
        readers.shutdown(wait=True)


@dataclass(frozen=True)
class ReadImage:
    """An image of the corpus with its picture, or the reason why it could not be read."""

    image: CorpusImage
    picture: Image | None
    reason: str = ""

    def skip(self, reason: str) -> dict[str, str]:
        """Return the record of a skipped image."""
        return {"key": self.image.key, "name": self.image.name, "reason": reason}


@dataclass(frozen=True)
class Prepared:
    """The inputs of a batch, the key of each row, and the skipped images."""

    keys: list[str]
    inputs: dict[str, Any]
    skipped: list[dict[str, str]]


def read(image: CorpusImage) -> ReadImage:
    """Read one image; an unreadable one is returned with the reason."""
    try:
        return ReadImage(image, image.read())
    except ImageError as error:
        return ReadImage(image, None, error.message)


def prepare(batch: Sequence[ReadImage], build: Callable[[Sequence[Any]], dict[str, Any]]) -> Prepared:
    """Build the inputs of the pictures that could be read; skip those that ``build`` refuses even alone.

    Raises:
        CalibrationError: ``build`` failed in another way; the batch's images are named.
    """
    rows = [one for one in batch if one.picture is not None]
    skipped = [one.skip(one.reason) for one in batch if one.picture is None]
    inputs: dict[str, Any] = {}
    try:
        while rows:
            try:
                inputs = build([one.picture for one in rows])
                break
            except (ValueError, ArithmeticError) as error:
                refused = {} if isinstance(error, ReweighError) else _refused(rows, build)
                if not refused:
                    raise
            skipped += [one.skip(refused[one.image.key]) for one in rows if one.image.key in refused]
            rows = [one for one in rows if one.image.key not in refused]
    except ReweighError:
        raise
    except Exception as error:  # a processor may raise anything
        names = ", ".join(one.image.name for one in rows)
        raise CalibrationError(
            f"the processor could not make inputs of {names} ({type(error).__name__}: {error})",
            hint="is it this model's processor? If one image is at fault, calibrate without it, in another output folder",
        ) from error
    return Prepared([one.image.key for one in rows], inputs, skipped)


def _refused(rows: Sequence[ReadImage], build: Callable[[Sequence[Any]], dict[str, Any]]) -> dict[str, str]:
    """Return the pictures that the processor refuses one by one (some refuse extreme shapes), with the reasons."""
    found = {}
    for one in rows:
        try:
            build([one.picture])
        except (ValueError, ArithmeticError) as error:
            size = one.picture.size if one.picture is not None else None
            found[one.image.key] = f"the model's processor refuses a picture of {size} pixels ({error})"
    return found
