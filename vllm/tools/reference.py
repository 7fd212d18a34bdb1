"""What the transformers engine says, for the vLLM tests to be compared with: checkpoints, tables, pictures and tokens.

Run in the package's own environment, which has another transformers than vLLM allows:
``python vllm/tools/reference.py FOLDER``. A folder that is there already is left alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from safetensors.torch import load_file, save_file

import reweigh
from checkpoints import families, load, picture, prompt
from reweigh import world as embedded
from reweigh.calibration.calibrate import calibrate
from reweigh.families.load import load as load_model
from reweigh.world.scenes import scenes

FAMILIES = ("llava", "llava_next", "qwen2_5_vl", "internvl")
TOKENS = 24
WORLD_TOKENS = 40
OBSERVED = (40, 12)
"""Tokens of a calibration's descriptions; fewer on the interpreter."""
LAYER = 1
BETA = 4.0
QUESTIONS = ("Please describe this image in detail.", "What is in the image? Is there a clock on the wall?")
SIZES = ((56, 56), (84, 40), (30, 70), (56, 28), (61, 45))
ONE_SIZE = ((56, 56),) * 5
"""LLaVA crops to its square: other shapes only add resizing, which image libraries do differently."""


def main(folder: Path) -> None:
    """Make what is missing in ``folder``."""
    torch.set_num_threads(1)
    if not (folder / "world" / "cases.json").is_file():
        world(folder / "world")
    for family in FAMILIES:
        if not (folder / family / "cases.json").is_file():
            random_family(family, folder / family)
    for family in ("gemma3", "instructblip"):  # only to be refused
        if not (folder / family / "checkpoint" / "config.json").is_file():
            small(family, folder / family / "checkpoint")


def small(family: str, folder: Path) -> None:
    """A random checkpoint whose heads have 32 channels, the fewest that vLLM's CPU attention knows."""
    families.WIDTH = 128
    families.build(family, folder)
    config = json.loads((folder / "config.json").read_text())
    if family == "qwen2_5_vl":
        config["text_config"]["rope_parameters"]["mrope_section"] = [4, 6, 6]
        (folder / "config.json").write_text(json.dumps(config))
    if family in ("llava", "llava_next", "gemma3"):
        _release_names(folder / "model.safetensors")


def _release_names(file: Path) -> None:
    """Weights under the names of released checkpoints, which vLLM knows; transformers reads both."""
    tensors = load_file(file)
    renamed = {_released(name): tensor for name, tensor in tensors.items()}
    save_file(renamed, file, metadata={"format": "pt"})


def _released(name: str) -> str:
    for old, new in (("vision_tower.", "vision_tower.vision_model."),):
        if old in name and new not in name:
            name = name.replace(old, new)
    return name


def random_family(family: str, folder: Path) -> None:
    small(family, folder / "checkpoint")
    model, processor = load(folder / "checkpoint")
    sizes = ONE_SIZE if family == "llava" else SIZES
    corpus = [(f"{seed}", picture(seed, sizes[seed % 5])) for seed in range(100, 116)]
    calibrate(
        model, processor, corpus, layers=[LAYER], out=folder / "table", max_new_tokens=TOKENS, rule="count-2"
    )
    pictures = [picture(seed, sizes[seed]) for seed in range(5)]
    asked = [([seed], QUESTIONS[seed % 2]) for seed in range(5)] + [
        ([0, 1], QUESTIONS[0]),
        ([2, 3, 4], QUESTIONS[1]),
    ]
    cases = [
        _case(model, processor, pictures, images, prompt(processor, question, len(images)), folder)
        for images, question in asked
    ]
    _write(folder, pictures, cases, BETA, LAYER)


def _case(
    model: Any, processor: Any, pictures: list[Any], images: list[int], text: str, folder: Path
) -> dict[str, Any]:
    inputs = processor(text=[text], images=[pictures[one] for one in images], return_tensors="pt")
    options = {"do_sample": False, "max_new_tokens": TOKENS}
    start = inputs["input_ids"].shape[1]
    plain = model.generate(**inputs, **options)[0, start:].tolist()
    edited = {}
    for beta in (BETA, BETA / 2):
        with reweigh.attach(model, processor, table=folder / "table", layer=LAYER, beta=beta):
            edited[beta] = model.generate(**inputs, **options)[0, start:].tolist()
    return {
        "images": images,
        "prompt": text,
        "prompt_ids": inputs["input_ids"][0].tolist(),
        "plain": plain,
        "edited": edited[BETA],
        "half": edited[BETA / 2],
    }


def world(folder: Path) -> None:
    """The embedded checkpoint with its own table and operating point."""
    model, processor = load_model(embedded.path(), device="cpu")
    point = embedded.operating_point()
    pictures = [scene.image() for scene in scenes("evaluation", 6)]
    for length in OBSERVED:
        calibrate(
            model,
            processor,
            [(f"{i}.png", one) for i, one in enumerate(pictures)],
            layers=[1, point["layer"]],
            out=folder / f"observed-{length}",
            max_new_tokens=length,
            rule="count-1",
        )
    text = prompt(processor)
    cases = [_world_case(model, processor, pictures, [index], text) for index in range(len(pictures))]
    pair = _world_case(model, processor, pictures, [2, 3], f"{text} {text}")
    _write(folder, pictures, cases, point["beta"], point["layer"], pair=pair)


def _world_case(
    model: Any, processor: Any, pictures: list[Any], images: list[int], text: str
) -> dict[str, Any]:
    point = embedded.operating_point()
    inputs = processor(text=[text], images=[pictures[one] for one in images], return_tensors="pt")
    start, options = inputs["input_ids"].shape[1], {"do_sample": False, "max_new_tokens": WORLD_TOKENS}
    case = {"images": images, "prompt": text, "prompt_ids": inputs["input_ids"][0].tolist()}
    case["plain"] = model.generate(**inputs, **options)[0, start:].tolist()
    for name, beta in (("edited", point["beta"]), ("half", point["beta"] / 2)):
        with reweigh.attach(model, processor, table=embedded.table_path(), layer=point["layer"], beta=beta):
            case[name] = model.generate(**inputs, **options)[0, start:].tolist()
            if name == "edited":
                penalised = model.generate(**inputs, **options, repetition_penalty=1.3)
                case["penalised"] = penalised[0, start:].tolist()
    return case


def _write(folder: Path, pictures: list[Any], cases: list[Any], beta: float, layer: int, **more: Any) -> None:
    for index, one in enumerate(pictures):
        one.save(folder / f"{index}.png")
    differing = sum(case["plain"] != case["edited"] for case in cases)
    sys.stdout.write(f"{folder.name}: {len(cases)} cases, edits change {differing}\n")
    (folder / "cases.json").write_text(json.dumps({"beta": beta, "layer": layer, "cases": cases, **more}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
