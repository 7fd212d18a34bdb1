"""Heat maps: evidence laid over the picture it was read from, with the scale of its colours. Needs NumPy and Pillow."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

from reweigh.errors import InputError
from reweigh.results.html import Html, element

if TYPE_CHECKING:
    from PIL.Image import Image


def heatmap(
    picture: Image,
    values: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    cover: float = 0.75,
    scale: bool = False,
) -> bytes:
    """Lay a grid of evidence over the picture it was read from and return PNG bytes.

    Args:
        picture: The image, whose whole area the grid covers.
        values: Two-dimensional numbers, first index from top to bottom; NaN where there is no evidence.
        low: Value shown as nothing; the smallest by default.
        high: Value shown strongest; the largest by default.
        cover: How much the strongest evidence hides the picture, 0 to 1.
        scale: Draw the colour scale below the picture, for a file that is shown by itself.
    """
    import numpy as np
    from PIL import Image as pillow

    grid = np.asarray(values, dtype=np.float64)
    if grid.ndim != 2 or grid.size == 0:
        raise InputError(f"a heat map needs a grid of rows and columns, not shape {grid.shape}")
    finite = grid[np.isfinite(grid)]
    floor = float(finite.min()) if low is None and finite.size else low or 0.0
    roof = float(finite.max()) if high is None and finite.size else high or 0.0
    span = roof - floor
    share = (
        np.zeros_like(grid) if span <= 0 else np.clip((np.nan_to_num(grid, nan=floor) - floor) / span, 0, 1)
    )
    smooth = pillow.fromarray(share.astype(np.float32)).resize(picture.size, pillow.Resampling.BICUBIC)
    weight = np.clip(np.asarray(smooth, dtype=np.float64), 0, 1)[..., None]
    base = np.asarray(picture.convert("RGB"), dtype=np.float64)
    # The picture is dimmed where nothing is seen, so that the warm colours stand out on any content.
    grey = base.mean(axis=2, keepdims=True)
    dimmed = 0.45 * base + 0.25 * grey
    blended = dimmed * (1 - cover * weight) + _warm(weight) * cover * weight
    painted = pillow.fromarray(np.clip(np.rint(blended), 0, 255).astype(np.uint8))
    return _png(with_scale(painted, floor, roof) if scale else painted)


WARM = ((0.0, (70, 20, 90)), (0.35, (190, 45, 80)), (0.7, (245, 140, 50)), (1.0, (255, 240, 160)))
"""Colours of a heat map by share of its range."""


def heat_scale(low: float, high: float) -> Html:
    """The colours of a heat map from ``low`` to ``high``, for below it."""
    stops = ", ".join(f"rgb{colour} {share:.0%}" for share, colour in WARM)
    strip = element("i", style=f"background: linear-gradient(to right, {stops})")
    ends = (element("span", f"{end:.3g}") for end in (low, high))
    return element("div", next(ends), strip, next(ends), class_="scale muted")


def _warm(value: Any) -> Any:
    import numpy as np

    shares = [share for share, _ in WARM]
    channels = [
        np.interp(value[..., 0], shares, [float(colour[channel]) for _, colour in WARM])
        for channel in range(3)
    ]
    return np.stack(channels, axis=-1)


STRIP = 26
"""Pixels that the scale adds below a picture."""


def with_scale(painted: Image, low: float, high: float) -> Image:
    """A heat map with its colours from ``low`` to ``high`` drawn below it."""
    import numpy as np
    from PIL import Image as pillow
    from PIL import ImageDraw

    width, height = painted.size
    sheet = pillow.new("RGB", (width, height + STRIP), "white")
    sheet.paste(painted, (0, 0))
    pen = ImageDraw.Draw(sheet)
    ends = [f"{end:.3g}" for end in (low, high)]
    first, last = (int(pen.textlength(end)) + 8 for end in ends)
    pen.text((4, height + 7), ends[0], fill="black")
    pen.text((width - last + 4, height + 7), ends[1], fill="black")
    if (across := width - first - last) > 1:
        share = np.broadcast_to(np.linspace(0, 1, across)[None, :, None], (10, across, 1))
        sheet.paste(pillow.fromarray(_warm(share).astype(np.uint8)), (first, height + 8))
    return sheet


def _png(image: Image) -> bytes:
    buffer = BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
