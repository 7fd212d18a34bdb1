"""Reading images: upright RGB or a refusal that says why; broken files of every kind are refusals."""

from __future__ import annotations

import contextlib
import io
import struct
import threading
import time
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from reweigh.errors import ImageError, InputError
from reweigh.images import MAX_PIXELS, list_images, read_image

FORMATS = ("PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP")


def noise(width=12, height=9, seed=0):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def encoded(picture, kind="PNG", **options):
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def declared(width, height):
    """A PNG of some hundred bytes that says it is large; reading its pixels would fail, its size comes first."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("kind", FORMATS)
def test_every_listed_format_from_file_bytes_and_picture(tmp_path, kind):
    path = tmp_path / f"picture.{kind.lower()}"
    path.write_bytes(encoded(noise(), kind))
    opened = [read_image(path), read_image(str(path)), read_image(path.read_bytes())]
    for picture in opened:
        assert (picture.mode, picture.size) == ("RGB", (12, 9))
        assert np.array_equal(picture, opened[0])
    if kind in ("PNG", "BMP", "TIFF"):
        assert np.array_equal(opened[0], noise())
    assert [found.name for found in list_images(tmp_path)] == [path.name]


@pytest.mark.parametrize("size", [(2, 201), (201, 2), (2, 60_000), (2, 120_000)])
def test_impossible_ratios_are_refused_before_anything_is_decoded(size):
    with pytest.raises(ImageError, match="100 to 1"):
        read_image(declared(*size))
    with pytest.raises(ImageError, match="100 to 1"):
        read_image(Image.new("RGB", size))
    assert read_image(Image.new("RGB", (200, 2))).size == (200, 2)


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK", "YCbCr"])
def test_every_mode_becomes_rgb(mode):
    assert read_image(Image.new(mode, (4, 4))).mode == "RGB"


def test_sixteen_bit_grey_keeps_its_shades():
    gray = np.linspace(0, 65535, 64, dtype=np.uint16).reshape(8, 8)
    found = np.asarray(read_image(encoded(Image.fromarray(gray))))[..., 0].astype(int)
    assert np.abs(found - gray // 256).max() <= 1


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_thirty_two_bits_are_refused_and_do_not_turn_white(kind):
    wide = Image.fromarray(np.full((8, 8), 40_000, dtype=kind))
    for source in (wide, encoded(wide, "TIFF")):
        with pytest.raises(ImageError, match="32-bit"):
            read_image(source)


@pytest.mark.parametrize("name", ["harmless.png", "drawing.eps"])
def test_postscript_starts_no_program(tmp_path, monkeypatch, name):
    path = tmp_path / name
    stream = io.BytesIO()
    noise().save(stream, "EPS")
    path.write_bytes(stream.getvalue())
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("a program was started"))
    with pytest.raises(ImageError, match="JPEG"):
        read_image(path)


@pytest.mark.parametrize("kind", ["PPM", "PCX", "TGA", "ICO", "JPEG2000"])
def test_other_formats_are_refused_by_name(kind):
    try:
        data = encoded(noise(16, 16), kind)
    except (KeyError, OSError):
        pytest.skip(f"this Pillow writes no {kind}")
    with pytest.raises(ImageError, match="not one of"):
        read_image(data)


def test_a_link_that_leads_nowhere_is_an_image_that_cannot_be_read(tmp_path):
    noise().save(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to(tmp_path / "gone.png")
    (tmp_path / "c.png").symlink_to(tmp_path)  # a folder is none
    assert [path.name for path in list_images(tmp_path)] == ["a.png", "b.png"]
    with pytest.raises(ImageError, match="exist"):
        read_image(tmp_path / "b.png")


def test_a_turned_photo_is_put_upright():
    exif = Image.Exif()
    exif[0x0112] = 6
    assert read_image(encoded(noise(12, 9), "JPEG", exif=exif)).size == (9, 12)


def test_the_callers_picture_is_not_changed():
    picture = noise().convert("RGBA")
    before = picture.tobytes()
    read_image(picture).putpixel((0, 0), (1, 2, 3))
    assert (picture.mode, picture.tobytes()) == ("RGBA", before)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ImageError, match=r"nothing\.png"):
        read_image(tmp_path / "nothing.png")


@pytest.mark.parametrize("data", [b"", b"not an image at all", b"\x89PNG\r\n\x1a\n"])
def test_what_is_not_an_image_is_refused(data):
    with pytest.raises(ImageError, match="BMP"):
        read_image(data)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "TIFF"])
def test_a_truncated_image_is_refused_and_its_file_closed(tmp_path, kind):
    path = tmp_path / f"cut.{kind.lower()}"
    data = encoded(noise(64, 64), kind)
    path.write_bytes(data[: len(data) // 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        with pytest.raises(ImageError, match="cut") as caught:
            read_image(path)
    assert "complete" in str(caught.value)


def test_a_truncated_picture_that_was_opened_lazily_is_refused():
    data = encoded(noise(64, 64), "JPEG")
    with pytest.raises(ImageError, match="read"):
        read_image(Image.open(io.BytesIO(data[: len(data) // 2])))


def test_a_fifty_megapixel_image_is_refused_before_it_is_decoded():
    with pytest.raises(ImageError, match="10000x5000") as caught:
        read_image(declared(10_000, 5_000))
    assert "scale" in str(caught.value)


@pytest.mark.parametrize("side", [11_000, 60_000])
def test_a_decompression_bomb_is_refused_without_a_warning(side):
    with pytest.raises(ImageError, match=r"megapixels|large"):
        read_image(declared(side, side))


def test_the_limit_is_inclusive_and_the_callers():
    assert read_image(noise(10, 10), max_pixels=100).size == (10, 10)
    with pytest.raises(ImageError, match="10x10"):
        read_image(noise(10, 10), max_pixels=99)
    assert MAX_PIXELS == 48_000_000


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1)])
def test_an_image_of_one_pixel_a_side_is_refused(size):
    with pytest.raises(ImageError, match=f"{size[0]}x{size[1]}"):
        read_image(Image.new("RGB", size))
    assert read_image(Image.new("RGB", (2, 2))).size == (2, 2)


@settings(max_examples=150)
@given(
    kind=st.sampled_from(FORMATS),
    cut=st.floats(0, 1),
    changes=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=4),
)
def test_damage_of_any_kind_is_a_picture_or_an_image_error(kind, cut, changes):
    data = bytearray(encoded(noise(), kind))
    for place, byte in changes:
        data[int(place * len(data))] = byte
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow remarks on broken metadata
        with contextlib.suppress(ImageError):
            assert read_image(bytes(data[: int(len(data) * max(cut, 0.3))])).mode == "RGB"


def test_lists_are_sorted_by_path_and_leave_other_files_out(tmp_path):
    for name in ("b.png", "a/z.JPG", "a/y.jpeg", "notes.txt", "c.webp.part"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "folder.png").mkdir()
    found = [path.relative_to(tmp_path).as_posix() for path in list_images(tmp_path)]
    assert found == ["a/y.jpeg", "a/z.JPG", "b.png"]


def test_an_empty_folder_and_no_folder(tmp_path):
    with pytest.raises(InputError, match="no image") as caught:
        list_images(tmp_path)
    assert ".png" in str(caught.value)
    with pytest.raises(InputError, match="folder"):
        list_images(tmp_path / "nothing")


def test_threads_that_open_at_the_same_time_leave_the_filters_of_warnings_alone(monkeypatch):
    opened, entered, second = Image.open, [], threading.Event()
    data = encoded(noise())

    def slow(source, **options):
        entered.append(source)
        if len(entered) == 1:
            second.wait(0.2)  # let in together, the first would leave while the second is inside
        else:
            second.set()
            time.sleep(0.1)
        return opened(source, **options)

    monkeypatch.setattr(Image, "open", slow)
    before = list(warnings.filters)
    with ThreadPoolExecutor(2) as pool:
        assert [found.size for found in pool.map(read_image, [data, data])] == [(12, 9), (12, 9)]
    assert warnings.filters == before


def test_a_missing_picture_and_a_folder_get_a_hint(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "kitchen.png")
    with pytest.raises(ImageError, match="exist") as missed:
        read_image(tmp_path / "kichen.png")
    assert str(tmp_path / "kitchen.png") in missed.value.hint
    with pytest.raises(ImageError) as elsewhere:
        read_image(tmp_path / "nowhere" / "a.png")
    assert str(tmp_path / "nowhere") in elsewhere.value.hint
    with pytest.raises(ImageError) as alone:
        read_image(tmp_path / "zebra.jpg")
    assert alone.value.hint is None
    with pytest.raises(ImageError, match="picture") as folder:
        read_image(tmp_path)
    assert f"{tmp_path}/*.png" in folder.value.hint
    (tmp_path / "empty").mkdir()
    with pytest.raises(ImageError) as empty:
        read_image(tmp_path / "empty")
    assert "picture" in empty.value.hint
