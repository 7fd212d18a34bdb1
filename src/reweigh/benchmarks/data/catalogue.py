"""What there is to fetch: official address, size, checksum and licence of every benchmark's files.

A checksum that is not known is None, never a guess; the hash of the first fetch is then kept in the receipt.
"""

from __future__ import annotations

from dataclasses import dataclass

from reweigh.errors import UnknownNameError


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file to fetch.

    Args:
        name: Path below the dataset's folder; the name of the archive if it is unpacked.
        url: Official address.
        size: Bytes, where known.
        checksum: ``sha256:...`` or ``md5:...``, where known.
        unpack: Whether it is an archive whose content is wanted.
        holds: What unpacking gives, by which an unpacked local copy is recognised.
    """

    name: str
    url: str
    size: int | None = None
    checksum: str | None = None
    unpack: bool = False
    holds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A benchmark's files, their licence, and what a person still has to do by hand."""

    name: str
    title: str
    licence: str
    page: str
    files: tuple[File, ...]
    by_hand: str = ""

    @property
    def size(self) -> int | None:
        """Bytes of all files, if every size is known."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)


_COCO = "http://images.cocodataset.org"
_CHAIR = "https://raw.githubusercontent.com/LisaAnne/Hallucination/master"
_AMBER = "https://raw.githubusercontent.com/junyangwang0410/AMBER/534babf6bbfcce2e735c26289dedfb21cef3c939"
_POPE = "https://raw.githubusercontent.com/AoiDragon/POPE/main/output/coco"
_MMVET = "https://raw.githubusercontent.com/yuweihao/MM-Vet/7d717c2f54a584b7ed363d66e6481ce1bf648538"
_MMHAL = "https://huggingface.co/datasets/Shengcao1006/MMHal-Bench/resolve/f5f49a938f45ed99e235b8519ba28f76832a2add"


def _amber(name: str, size: int, sha256: str) -> File:
    return File(name=name, url=f"{_AMBER}/data/{name}", size=size, checksum=f"sha256:{sha256}")


_DATASETS = (
    Dataset(
        name="chair",
        title="CHAIR: synonym table and COCO 2014 annotations",
        licence="table BSD-2-Clause, annotations CC BY 4.0",
        page="https://github.com/LisaAnne/Hallucination",
        files=(
            File(
                name="synonyms.txt",
                url=f"{_CHAIR}/data/synonyms.txt",
                size=3577,
                checksum="sha256:b685537b36fe21b791c87151b96a991ceb582edff19f3da204dcc7a7905502f2",
            ),
            File(
                name="annotations_trainval2014.zip",
                url=f"{_COCO}/annotations/annotations_trainval2014.zip",
                size=252_872_794,
                checksum="md5:0a379cfc70b0e71301e0f377548639bd",
                unpack=True,
                holds=(
                    "annotations/captions_train2014.json",
                    "annotations/captions_val2014.json",
                    "annotations/instances_train2014.json",
                    "annotations/instances_val2014.json",
                ),
            ),
        ),
        by_hand="the images are the dataset coco-val2014",
    ),
    Dataset(
        name="coco-val2014",
        title="COCO val2014 images, for CHAIR and POPE",
        licence="Flickr terms of use",
        page="https://cocodataset.org",
        files=(
            File(
                name="val2014.zip",
                url=f"{_COCO}/zips/val2014.zip",
                size=6_645_013_297,
                checksum="md5:a3d79f5ed8d289b7a7554ce06a5782b3",
                unpack=True,
                holds=("val2014",),
            ),
        ),
    ),
    Dataset(
        name="amber",
        title="AMBER: annotations, word lists and questions",
        licence="Apache-2.0",
        page="https://github.com/junyangwang0410/AMBER",
        files=(
            _amber(
                "annotations.json",
                1_813_301,
                "db22a436c4836fbb295e60b4e80d519573077579fb7032f01b193c1bd022b797",
            ),
            _amber(
                "relation.json", 12_699, "c4c1491e9bbc3209abc1888c12a1bf8413bdbab8a0d8be04b990a2e7680cf23e"
            ),
            _amber("safe_words.txt", 57, "f92cf1123f4578a2630832fac3e6ac4de36212ea55859d3bed4fd233723f4043"),
            _amber("metrics.txt", 899, "2fbe2ee584d10e7ce0a568a4902d3d2296727d45f761bf091dd35c4e4b5bc6ac"),
            _amber(
                "query/query_generative.json",
                106_220,
                "b7e4c36596126ee36d2c3922638b7fa98743c26efda78fea2315f4425258d087",
            ),
            _amber(
                "query/query_discriminative.json",
                1_738_529,
                "1502887ac020f4bb7ea564af4e37bddcb030d61b78490d00f9da492a2307abb8",
            ),
        ),
        by_hand="the 1,004 images are behind a link on the page; name their folder with --images",
    ),
    Dataset(
        name="pope",
        title="POPE: questions on COCO, three splits",
        licence="MIT",
        page="https://github.com/AoiDragon/POPE",
        files=tuple(
            File(name=f"coco_pope_{split}.json", url=f"{_POPE}/coco_pope_{split}.json")
            for split in ("random", "popular", "adversarial")
        ),
        by_hand="the images are the dataset coco-val2014",
    ),
    Dataset(
        name="mmhal",
        title="MMHal-Bench: questions, images and the judge's prompt",
        licence="Apache-2.0",
        page="https://huggingface.co/datasets/Shengcao1006/MMHal-Bench",
        files=(
            File(name="response_template.json", url=f"{_MMHAL}/response_template.json"),
            File(name="eval_gpt4.py", url=f"{_MMHAL}/eval_gpt4.py"),
            File(name="test_data.zip", url=f"{_MMHAL}/test_data.zip", unpack=True, holds=("images",)),
        ),
    ),
    Dataset(
        name="mmvet",
        title="MM-Vet: questions, images and the judge's prompt",
        licence="data CC BY-NC 4.0, program Apache-2.0",
        page="https://github.com/yuweihao/MM-Vet",
        files=(
            File(name="mm-vet_evaluator.py", url=f"{_MMVET}/mm-vet_evaluator.py"),
            File(
                name="mm-vet.zip",
                url="https://github.com/yuweihao/MM-Vet/releases/download/v1/mm-vet.zip",
                unpack=True,
                holds=("mm-vet",),
            ),
        ),
    ),
)

CATALOGUE: dict[str, Dataset] = {entry.name: entry for entry in _DATASETS}
"""All datasets by name."""


def dataset(name: str) -> Dataset:
    """Find a dataset, suggesting near names."""
    if name not in CATALOGUE:
        raise UnknownNameError("dataset", name, CATALOGUE)
    return CATALOGUE[name]
