"""Text that every part shares: the default prompt, and what makes any string fit for a file."""

from __future__ import annotations

DESCRIBE = "Please describe this image in detail."
"""The paper's prompt for calibration and CHAIR, and the default wherever an image is described."""


def replace_surrogates(text: str) -> str:
    """Replace lone halves of surrogate pairs by ``?``.

    A byte-level tokenizer or a JSON escape can leave one, and no UTF-8 file or request can carry it.
    """
    return text.encode("utf-8", "replace").decode("utf-8")
