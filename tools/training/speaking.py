"""Let a model describe scenes and answer questions about them, in batches, greedily."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from reweigh.errors import InputError
from reweigh.world.scenes import Scene
from tools.training.grammar import DETAIL_PROMPTS, question

PROMPT = DETAIL_PROMPTS[0]
LONGEST = 110
"""New tokens allowed in a description."""
BATCH = 50


def chat_prompt(processor: Any, text: str) -> str:
    """One user turn with an image, in the model's conversation format."""
    content = [{"type": "image"}, {"type": "text", "text": text}]
    return str(
        processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    )


def prompted(processor: Any, images: Sequence[Any], prompts: Sequence[str] | None = None) -> Any:
    """Inputs of one prompt per image; the long description's if none is given."""
    texts = [chat_prompt(processor, prompt) for prompt in prompts or [PROMPT] * len(images)]
    return processor(images=list(images), text=texts, padding=True, return_tensors="pt")


def reply(
    model: Any, processor: Any, images: Sequence[Any], prompts: Sequence[str], *, longest: int, **options: Any
) -> list[str]:
    """Greedy replies to one prompt per image."""
    import torch

    inputs = prompted(processor, images, prompts)
    with torch.inference_mode():
        out = model.generate(**inputs, max_new_tokens=longest, do_sample=False, **options)
    new = out[:, inputs["input_ids"].shape[1] :]
    return [text.strip() for text in processor.batch_decode(new, skip_special_tokens=True)]


def descriptions(
    model: Any, processor: Any, scenes: Sequence[Scene], *, batch: int = BATCH, **options: Any
) -> list[str]:
    """A long description of each scene."""
    out: list[str] = []
    for part in parts(scenes, batch):
        images = [s.image() for s in part]
        out += reply(model, processor, images, [PROMPT] * len(part), longest=LONGEST, **options)
    return out


def presence(
    model: Any, processor: Any, asked: Sequence[tuple[Scene, str]], *, batch: int = 100
) -> list[bool | None]:
    """Answers to "Is there a ... in the image?"; None where the reply is neither yes nor no."""
    out: list[bool | None] = []
    for part in parts(asked, batch):
        images = [s.image() for s, _ in part]
        for said in reply(model, processor, images, [question(name) for _, name in part], longest=3):
            word = said.lower().strip(" .")
            out.append({"yes": True, "no": False}.get(word))
    return out


def parts(items: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    """Consecutive parts of at most ``size`` items."""
    return (items[i : i + size] for i in range(0, len(items), size))


def load(folder: Path | None = None) -> tuple[Any, Any]:
    """A model and its processor in float32, on the CPU; the embedded ones if no folder is given."""
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from reweigh.world import path

    folder = path() if folder is None else folder
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder} contains no model", hint="pass a checkpoint folder with a config.json")
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    return model.eval(), AutoProcessor.from_pretrained(folder, local_files_only=True)
