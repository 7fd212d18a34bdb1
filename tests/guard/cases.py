"""What the core computes, as flat tensors: tokens and edited logits of every decoder, tables, evidence and traces.

Runs with the package that is importable, so that two versions can be compared bit for bit:
``python tests/guard/cases.py FOLDER`` writes one file for each section into a folder.
"""

from __future__ import annotations

import copy
import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import numpy as np
import torch
from safetensors.torch import save_file

import reweigh
import twin
from checkpoints import FAMILIES, picture

Found = dict[str, torch.Tensor]
PROMPTS = ("Please describe this image in detail.", "What is in the image?", "Tell me a story.")
RIVALS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beam": {"num_beams": 3},
    "nucleus": {"top_p": 0.8},
    "cut": {"beta": 0.3},
    "push": {"gap": 1.0, "mass": 0.0},
    "vcd": {},
    "opera": {"num_beams": 2, "num_attn_candidates": 3, "threshold": 2},
    "dola": {},
    "pai": {},
    "revisit": {},
    "deco": {},
    "m3id": {"decay": 0.2},
    "icd": {},
    "sid": {"keep": 4},
    "memvr": {"gamma": 0.3},
    "code": {"description_tokens": 5},
    "damro": {"keep": 3},
    "projectaway": {"erase": ["dog", "umbrella"]},
    "vista": {},
    "only": {},
}
OWN_REGIME = {"beam", "nucleus", "opera"}
REGIMES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "top_k": 0},
    "beams": {"do_sample": False, "num_beams": 3},
}


def home() -> Path:
    return Path(os.environ["REWEIGH_GUARD"])


def using(rw: Any, **options: Any) -> Any:
    return (getattr(rw, "using", None) or rw.request)(**options)


def case(family: str) -> twin.Case:
    return twin.case(home() / "checkpoints" / family)


def rows(family: str) -> dict[str, Any]:
    if family == "instructblip":
        return case(family).inputs(seeds=(1, 3), texts=(PROMPTS[0], PROMPTS[0]))
    return case(family).inputs(seeds=(1, 2, None), texts=PROMPTS)


def generate(model: Any, inputs: dict[str, Any], **options: Any) -> Any:
    fixed = {
        "max_new_tokens": 5,
        "return_dict_in_generate": True,
        "output_logits": True,
        "eos_token_id": None,
    }
    torch.manual_seed(3)
    with torch.no_grad():
        return model.generate(**inputs, **{**fixed, **options})


def keep(found: Found, name: str, output: Any) -> None:
    found[f"{name}/tokens"] = output.sequences.clone()
    if getattr(output, "logits", None):
        found[f"{name}/logits"] = torch.stack([step.float() for step in output.logits]).contiguous()


def rivals() -> Found:
    found: Found = {}
    for name, options in RIVALS.items():
        for family in ("llava", "instructblip") if name == "damro" else ("llava", "qwen2_5_vl"):
            one, inputs = case(family), rows(family)
            session = reweigh.decoder(name, one.model, one.processor, **options)
            more = {"max_new_tokens": 12} if name == "opera" else {}
            for regime, given in ({"own": {}} if name in OWN_REGIME else REGIMES).items():
                with session:
                    keep(found, f"{name}/{family}/{regime}", generate(one.model, inputs, **given, **more))
    return found


def table(vocab: int, layer: int = 2) -> Any:
    return twin.table(vocab, layer=layer)


def attached(family: str, beta: float = 3.0) -> tuple[Any, Any]:
    one = case(family)
    vocab = twin.parts(one.model)[1].weight.shape[0]
    return one, reweigh.attach(one.model, one.processor, table=table(vocab), beta=beta, force=True)


def reweighed(family: str) -> Found:
    found: Found = {}
    one, rw = attached(family)
    inputs = rows(family)
    count = len(inputs["input_ids"])
    modes: dict[str, dict[str, Any]] = {
        **REGIMES,
        "returns": {"do_sample": True, "top_k": 0, "num_return_sequences": 2},
        "penalty": {"do_sample": False, "repetition_penalty": 1.5},
        "no cache": {"do_sample": False, "use_cache": False},
    }
    for mode, options in modes.items():
        with rw:
            keep(found, mode, generate(one.model, inputs, **options))
    with using(rw, beta=[0.0, 8.0, 1.0][:count], trace=True) as run:
        keep(found, "betas", generate(one.model, inputs, do_sample=False))
    for row in range(count):
        steps = run.trace.to_json(row)["steps"]
        numbers = [
            [step["winner_before"], step["winner_after"]]
            + [
                c[k] or 0.0
                for c in step["candidates"]
                for k in ("token", "z", "dmrr", "b", "s", "shift", "z_after")
            ]
            for step in steps
        ]
        found[f"trace/{row}"] = torch.tensor(
            [float(n) for line in numbers for n in line], dtype=torch.float64
        )
    for row, evidence in enumerate(run.evidence):
        if evidence is not None:
            found[f"evidence/{row}"] = evidence.values.clone()
    given = [evidence for evidence in run.evidence]
    swapped = [given[1], given[0], *given[2:]]
    with using(rw, evidence=swapped):
        keep(found, "given", generate(one.model, inputs, do_sample=False))
    with rw, torch.no_grad():
        found["forward"] = one.model(**inputs).logits.float().contiguous()
    single = one.inputs()
    if family != "instructblip":
        with rw:
            keep(found, "draft", generate(one.model, single, do_sample=False, assistant_model=assistant(one)))
            turns(found, one)
        texts = rw.describe([picture(1), picture(2)], list(PROMPTS[:2]), max_new_tokens=6)
        found["described"] = torch.tensor([ord(c) for c in "|".join(texts)])
    measured = reweigh.measure(one.model, inputs, layers=[0, 1, -1], locate=[5, 7])
    for row, evidence in enumerate(measured):
        if evidence is not None:
            found[f"measured/{row}"] = evidence.values.clone()
            found[f"located/{row}"] = evidence.located.clone()
    return found


def assistant(one: Any) -> Any:
    """Another model, so that some drafts are rejected and the cache is cropped."""
    copied = copy.deepcopy(one.model)
    with torch.no_grad():
        twin.parts(copied)[1].weight[::3] += 0.05
    return copied


def turns(found: Found, one: Any) -> None:
    """A second question over a kept cache, and another over the cache cropped to the first prompt."""
    inputs = one.inputs()
    more = torch.tensor([one.processor.tokenizer(" What else?", add_special_tokens=False)["input_ids"]])
    first = generate(one.model, inputs, do_sample=False)
    keep(found, "turn 1", first)
    cache = first.past_key_values

    def longer(ids: torch.Tensor) -> dict[str, Any]:
        grown: dict[str, Any] = {"input_ids": ids}
        extra = ids.shape[1] - inputs["input_ids"].shape[1]
        for name in twin.GROWING[1:]:
            if name in inputs:
                tail = torch.full((1, extra), int(name == "attention_mask"), dtype=inputs[name].dtype)
                grown[name] = torch.cat([inputs[name], tail], dim=1)
        if "image_grid_thw" in inputs:
            grown["image_grid_thw"] = inputs["image_grid_thw"]
        return grown

    second = generate(
        one.model, longer(torch.cat([first.sequences, more], 1)), do_sample=False, past_key_values=cache
    )
    keep(found, "turn 2", second)
    if one.family == "gemma3":  # a windowed cache cannot be cropped
        return
    cache.crop(inputs["input_ids"].shape[1] - cache.get_seq_length())
    again = generate(
        one.model, longer(torch.cat([inputs["input_ids"], more], 1)), do_sample=False, past_key_values=cache
    )
    keep(found, "cropped", again)


@functools.cache
def world() -> tuple[Any, Any]:
    from reweigh import world as embedded
    from reweigh.families.load import load

    return load(embedded.path(), device="cpu")


def scenes(split: str, first: int, count: int) -> list[Any]:
    from reweigh.world.render import render
    from reweigh.world.scenes import scene

    return [render(scene(split, first + at), 112) for at in range(count)]


def in_world() -> Found:
    from reweigh import world as embedded
    from reweigh.families.prompts import build_inputs

    found: Found = {}
    model, processor = world()
    rw = reweigh.attach(model, processor, table=embedded.table_path(), beta=3.5)
    for first in (0, 7):
        inputs = build_inputs(model, processor, scenes("evaluation", first, 1), [PROMPTS[0]])
        with rw:
            keep(found, f"greedy {first}", generate(model, inputs, do_sample=False, max_new_tokens=60))
    mixed = build_inputs(model, processor, [*scenes("evaluation", 3, 2), None], list(PROMPTS))
    for regime, options in REGIMES.items():
        with rw:
            keep(found, f"mixed {regime}", generate(model, mixed, max_new_tokens=24, **options))
    ends = {"eos_token_id": model.generation_config.eos_token_id}
    with rw:
        keep(found, "ends", generate(model, mixed, max_new_tokens=120, do_sample=False, **ends))
    return found


def tables() -> Found:
    found: Found = {}
    model, processor = world()
    pictures = [(f"{at}.png", one) for at, one in enumerate(scenes("calibration", 0, 10))]
    options: dict[str, Any] = {"layers": [2, 3], "max_new_tokens": 60, "show": False}
    for name, batch in (("ones", 1), ("batches", 4)):
        made = reweigh.calibrate(model, processor, pictures[:6], batch_size=batch, **options)
        keep_tables(found, f"world {name}", made)
    small = [(f"{seed}.png", picture(seed, (60, 50))) for seed in range(10)]
    for family in ("llava", "qwen2_5_vl"):
        one = case(family)
        made = reweigh.calibrate(
            one.model, one.processor, small, layers=[1, -1], max_new_tokens=12, rule="count-3", show=False
        )
        keep_tables(found, family, made)
    return found


def keep_tables(found: Found, name: str, made: Any) -> None:
    for layer, one in made.tables.items():
        columns = (one.tokens, one.references, one.counts)
        found |= {
            f"{name}/{layer}/{part}": torch.from_numpy(np.array(column))
            for part, column in zip(("tokens", "references", "counts"), columns, strict=True)
        }
        scale = one.scale if hasattr(one, "scale") else one.b0
        found[f"{name}/{layer}/b0"] = torch.tensor(scale, dtype=torch.float64)


SECTIONS: dict[str, Callable[[], Found]] = {
    **{f"reweigh-{family}": functools.partial(reweighed, family) for family in FAMILIES},
    "world": in_world,
    "tables": tables,
    "rivals": rivals,
}


@contextmanager
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run(name: str) -> Found:
    with one_thread():
        found = SECTIONS[name]()
    return {key: value.detach().cpu().contiguous().clone() for key, value in found.items()}


if __name__ == "__main__":
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for section in sys.argv[2:] or SECTIONS:
        save_file(run(section), out / f"{section}.safetensors")
        sys.stderr.write(f"{section}\n")
