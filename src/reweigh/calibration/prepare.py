"""From the images of a corpus to the model's inputs, built by threads ahead of the model.

An image that cannot be used is left out, with its reason. Order is kept, and look-ahead is bounded.
Knows nothing of models: how pictures become inputs is given.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
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
    """Yield ``build([read(item) for item in batch])`` of each batch, in their order.

    While the taker has one batch, the next is built and the one after it is read, so what was read of two batches is
    held at most. An error is raised in its batch's turn. Close the generator to end its threads: what has not begun is
    dropped, what runs is waited for.
    """

    def build_read(items: list[Future[Read]]) -> Built:
        return build([item.result() for item in items])

    readers = ThreadPoolExecutor(READERS, thread_name_prefix="reweigh-read")
    builder = ThreadPoolExecutor(1, thread_name_prefix="reweigh-build")
    try:
        reading = (
            [readers.submit(read, item) for item in batch] for batch in batches
        )  # begins when asked for
        waiting = deque(islice(reading, 2))
        ready: list[Built] = []
        while waiting:
            building = builder.submit(build_read, waiting.popleft())
            yield from ready
            ready = [building.result()]
            waiting.extend(islice(reading, 1))
        yield from ready
    finally:
        readers.shutdown(wait=False, cancel_futures=True)  # first, so that a build that waits for them ends
        builder.shutdown(wait=True, cancel_futures=True)
        readers.shutdown(wait=True)


Inputs = dict[str, Any]
BuildInputs = Callable[[Sequence[Any]], Inputs]


@dataclass(frozen=True)
class ReadImage:
    """An image of the corpus with its picture, or with the reason why there is none."""

    image: CorpusImage
    picture: Image | None
    reason: str = ""

    def skip(self, reason: str) -> dict[str, str]:
        """The record of an image that is left out."""
        return {"key": self.image.key, "name": self.image.name, "reason": reason}


@dataclass(frozen=True)
class Prepared:
    """The inputs of a batch, the key of each row, and the images that have none."""

    keys: list[str]
    inputs: Inputs
    skipped: list[dict[str, str]]


def read(image: CorpusImage) -> ReadImage:
    """Read one image; that it cannot be read is a result like any other."""
    try:
        return ReadImage(image, image.read())
    except ImageError as error:
        return ReadImage(image, None, error.message)


def prepare(batch: Sequence[ReadImage], build: BuildInputs) -> Prepared:
    """Build the inputs of what could be read; pictures that ``build`` refuses even alone are left out, too.

    Raises:
        CalibrationError: ``build`` failed in another way; the batch's images are named.
    """
    rows = [one for one in batch if one.picture is not None]
    skipped = [one.skip(one.reason) for one in batch if one.picture is None]
    try:
        inputs, refused = _build(rows, build)
    except ReweighError:
        raise
    except Exception as error:  # processors are other people's code, and fail in ways of every kind
        raise _failed(rows, error) from error
    skipped += [one.skip(refused[one.image.key]) for one in rows if one.image.key in refused]
    return Prepared([one.image.key for one in rows if one.image.key not in refused], inputs, skipped)


def _build(rows: Sequence[ReadImage], build: BuildInputs) -> tuple[Inputs, dict[str, str]]:
    """Inputs of the rows, and the reason of each one that had to be left out of them."""
    try:
        return build([one.picture for one in rows]) if rows else {}, {}
    except (ValueError, ArithmeticError) as error:
        if isinstance(error, ReweighError):
            raise
        refused = {one.image.key: reason for one in rows if (reason := _refusal(one.picture, build))}
        if not refused:
            raise
    inputs, more = _build([one for one in rows if one.image.key not in refused], build)
    return inputs, refused | more


def _refusal(picture: Any, build: BuildInputs) -> str | None:
    """Why the processor does not take this picture (some refuse extreme shapes), ``None`` if it does."""
    try:
        build([picture])
    except (ValueError, ArithmeticError) as error:
        return f"the model's processor refuses a picture of {picture.size} pixels ({error})"
    return None


def _failed(rows: Sequence[ReadImage], error: Exception) -> CalibrationError:
    names = ", ".join(one.image.name for one in rows)
    return CalibrationError(
        f"the processor could not make inputs of {names} ({type(error).__name__}: {error})",
        hint="is it this model's processor? If one image is at fault, calibrate without it, in another output folder",
    )
