"""Reading the pictures once: patch features of a frozen CLIP tower, kept in a folder that can be resumed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reweigh.errors import InputError, MismatchError
from reweigh.files.artifacts import read_json, write_json, write_text
from reweigh.images import read_image
from reweigh.progress import bar
from tools.training.photographs.captions import read_captions, split_of, truth

RECORD, FEATURES, DONE = "record.json", "features.npy", "features.json"
BATCH = 16
READ = ("train", "dev")
"""Splits whose features training needs; the others are read by the finished model."""


@dataclass(frozen=True)
class Parts:
    """What the model is made of: names on the Hub, or folders."""

    vision: str = "openai/clip-vit-base-patch16"
    language: str = "HuggingFaceTB/SmolLM2-135M-Instruct"
    size: int = 128
    """Side in pixels at which the tower sees a picture; positions are interpolated."""


@dataclass(frozen=True)
class Prepared:
    """A prepared folder: its parts, the captions of every picture, and the names whose features are kept."""

    folder: Path
    parts: Parts
    captions: dict[str, list[str]]
    names: list[str]

    def of(self, split: str) -> list[int]:
        """Rows of a split among the features."""
        return [row for row, name in enumerate(self.names) if split_of(name) == split]

    def features(self) -> np.ndarray[Any, Any]:
        """Patch features, (pictures, patches, width), in float16 and left on the disk."""
        return np.asarray(np.load(self.folder / FEATURES, mmap_mode="r"))


def prepare(
    folder: Path, images: Path, captions: Path, parts: Parts, *, limit: int | None = None
) -> Prepared:
    """Read every training and development picture once; the same command resumes.

    ``folder`` also gets ``calibration.txt``, ``dev.txt`` and ``test.txt``, lists of pictures that every
    command takes, and ``truth-*.jsonl``, the objects that the captions name, for the benchmark ``objects``.
    """
    held = {name: texts for name, texts in read_captions(captions).items() if (images / name).is_file()}
    if not held:
        raise InputError(f"{images} has none of the pictures that {captions} names")
    names = sorted(held)[:limit]
    folder.mkdir(parents=True, exist_ok=True)
    record = {"parts": asdict(parts), "captions": {name: held[name] for name in names}}
    if (folder / RECORD).is_file() and read_json(folder / RECORD) != record:
        raise MismatchError(
            f"{folder} was prepared from other pictures or parts", hint="choose another folder"
        )
    write_json(folder / RECORD, record)
    for split in ("calibration", "dev", "test"):
        chosen = {name: held[name] for name in names if split_of(name) == split}
        write_text(folder / f"{split}.txt", "".join(f"{(images / name).resolve()}\n" for name in chosen))
        write_text(
            folder / f"truth-{split}.jsonl", "".join(json.dumps(line) + "\n" for line in truth(chosen))
        )
    prepared = load(folder)
    if not prepared.of("train") or len(prepared.of("dev")) < 2:
        raise InputError(
            f"{len(names)} pictures are too few to train and to check on", hint="use some hundreds"
        )
    _read(prepared, images)
    return prepared


def load(folder: Path) -> Prepared:
    """Open a prepared folder."""
    if not (folder / RECORD).is_file():
        raise InputError(
            f"{folder} has no prepared pictures",
            hint="run `python -m tools.training.photographs prepare` first",
        )
    record = read_json(folder / RECORD)
    names = [name for name in record["captions"] if split_of(name) in READ]
    return Prepared(folder, Parts(**record["parts"]), record["captions"], names)


def tower(parts: Parts) -> tuple[Any, Any]:
    """The CLIP tower and the image processor at the recipe's size."""
    from transformers import CLIPImageProcessorPil, CLIPVisionModel

    size = {"height": parts.size, "width": parts.size}
    processor = CLIPImageProcessorPil(do_resize=True, size=size, do_center_crop=False)
    return CLIPVisionModel.from_pretrained(parts.vision).float().eval(), processor


def _read(prepared: Prepared, images: Path) -> None:
    """Fill the features in order; what is finished is counted beside them after each batch."""
    import torch

    path, names = prepared.folder / FEATURES, prepared.names
    done = read_json(prepared.folder / DONE)["pictures"] if (prepared.folder / DONE).is_file() else 0
    if done == len(names):
        return
    model, processor = tower(prepared.parts)
    shape = (len(names), (prepared.parts.size // model.config.patch_size) ** 2, model.config.hidden_size)
    kept = np.lib.format.open_memmap(
        path, "r+" if done else "w+", None if done else np.float16, None if done else shape
    )
    shown = bar("features", total=len(names), done=done, unit="picture")
    for start in range(done, len(names), BATCH):
        batch = names[start : start + BATCH]
        pixels = processor([read_image(images / name) for name in batch], return_tensors="pt")["pixel_values"]
        with torch.inference_mode():
            states = model(pixels, output_hidden_states=True, interpolate_pos_encoding=True).hidden_states[-2]
        kept[start : start + len(batch)] = states[:, 1:].numpy()
        kept.flush()
        write_json(prepared.folder / DONE, {"pictures": start + len(batch)})
        shown.update(len(batch))
    shown.close()
