"""COCO's images, which several benchmarks share, and the names of their files."""

from __future__ import annotations

from reweigh.benchmarks.data.dataset import Dataset, File

COCO_URL = "http://images.cocodataset.org"

COCO_VAL2014 = Dataset(
    name="coco-val2014",
    title="COCO val2014 images, for CHAIR and POPE",
    licence="Flickr terms of use",
    page="https://cocodataset.org",
    files=(
        File(
            name="val2014.zip",
            url=f"{COCO_URL}/zips/val2014.zip",
            size=6_645_013_297,
            checksum="md5:a3d79f5ed8d289b7a7554ce06a5782b3",
            unpack=True,
            holds=("val2014",),
        ),
    ),
)


def image_names(number: int) -> list[str]:
    """File names of the image of a number, in the releases of 2014 and 2017."""
    return [f"COCO_val2014_{number:012d}.jpg", f"{number:012d}.jpg"]
