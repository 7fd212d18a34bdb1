"""The core cases: tokens and edited logits of every decoder, tables, evidence and checks on small random checkpoints.

Public names only. A decoder that is removed loses its entry here and its frozen file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import LogitsProcessor

import reweigh
import twin
from checkpoints import FAMILIES, build, picture
from goldens.values import FOLDERS, scratch
from reweigh.rivals.tools.vectors import SteeringVectors

STEPS = 4
TOP = 50
MADE_UP = FOLDERS / "made-up-table"
"""References drawn at random over the small checkpoints' vocabulary, layer 2."""
VECTORS = FOLDERS / "made-up-vectors" / "steering_vectors.safetensors"
"""Random steering vectors of the small checkpoints' width and depth, as ASD alone once kept them."""
PROMPTS = ("Please describe this image in detail.", "What is in the image?", "Tell me a story.")
REGIMES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "top_k": 0},
    "beams": {"do_sample": False, "num_beams": 3},
}


def asd_vectors() -> SteeringVectors:
    """The frozen vectors of ASD; the directions of VTI and Nullu, which it does not read, are stand-ins."""
    own = load_file(VECTORS)["vectors"]
    subspace = np.broadcast_to(np.eye(1, own.shape[1], dtype=np.float32), (len(own), 1, own.shape[1]))
    return SteeringVectors(own, own, subspace, 9, 9, 1, {"identity": {"model_id": "made up"}})


DECODERS: dict[str, dict[str, Any]] = {
    "base": {},
    "greedy": {},
    "beam": {"num_beams": 3},
    "nucleus": {"top_p": 0.8},
    "sampling": {},
    "cut": {"beta": 0.3},
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
    "asd": {"vectors": asd_vectors(), "lam": 0.5, "force": True},
    "projectaway": {"erase": ["dog", "umbrella"]},
}
"""Every decoder with options that show on a random model; ReWEIGH and HALC have cases of their own."""
OWN_REGIME = {"beam", "nucleus", "sampling", "opera"}
"""These set beams or sampling themselves."""
MORE = {"opera": {"max_new_tokens": 16}}
"""OPERA rolls back in longer texts only."""
SERVED = {"damro": ("llava", "instructblip")}


@functools.cache
def checkpoint(family: str) -> Path:
    """A saved random checkpoint, built once a process."""
    return build(family, scratch("checkpoints") / family)


def case(family: str) -> twin.Case:
    return twin.case(checkpoint(family))


def rows(family: str) -> dict[str, Any]:
    """Rows of different lengths, left-padded, the last without an image where the family can have one."""
    if family == "instructblip":
        return case(family).inputs(seeds=(1, 3), texts=(PROMPTS[0], PROMPTS[0]))
    return case(family).inputs(seeds=(1, 2, None), texts=PROMPTS)


def generate(model: Any, inputs: dict[str, Any], **options: Any) -> Any:
    fixed = {"max_new_tokens": STEPS, "return_dict_in_generate": True, "output_logits": True}
    torch.manual_seed(3)
    with torch.no_grad():
        return model.generate(**inputs, **{**fixed, "eos_token_id": None, **options})


def summary(output: Any, prompt: int, top: int = TOP) -> dict[str, Any]:
    """Tokens after the prompt, and the largest logits of each step and row by token id."""
    found: dict[str, Any] = {"tokens": output.sequences[:, prompt:].tolist()}
    if getattr(output, "sequences_scores", None) is not None:
        found["scores"] = output.sequences_scores.tolist()
    if getattr(output, "logits", None):
        found["logits"] = [[largest(row, top) for row in step] for step in output.logits]
    return found


def largest(logits: torch.Tensor, top: int) -> dict[str, Any]:
    """The ``top`` largest finite logits, the number of finite ones and their mean."""
    finite = logits[torch.isfinite(logits)].double()
    ids = logits.argsort(descending=True, stable=True)[: min(top, len(finite))].tolist()
    values = {f"{token}": float(logits[token]) for token in ids}
    return {"finite": len(finite), "mean": finite.mean().item(), "top": values}


def decoded(name: str) -> dict[str, Any]:
    """One rival in every regime on two families."""
    found: dict[str, Any] = {}
    for family in SERVED.get(name, ("llava", "qwen2_5_vl")):
        model, processor = case(family).model, case(family).processor
        inputs = rows(family)
        length = inputs["input_ids"].shape[1]
        session = reweigh.decoder(name, model, processor, **DECODERS[name])
        regimes = {"own": {}} if name in OWN_REGIME else REGIMES
        for regime, options in regimes.items():
            with session:
                output = generate(model, inputs, **options, **MORE.get(name, {}))
            found[f"{family}/{regime}"] = summary(output, length, TOP if regime in ("greedy", "own") else 8)
    return found


def reweighed(family: str, beta: float = 3.0) -> dict[str, Any]:
    """ReWEIGH in every regime, with rows of their own beta, given evidence, and a trace."""
    model, processor = case(family).model, case(family).processor
    inputs = rows(family)
    length = inputs["input_ids"].shape[1]
    table = reweigh.ReferenceTable.from_pretrained(MADE_UP)
    session = reweigh.attach(model, processor, table=table, beta=beta, force=True)
    found: dict[str, Any] = {}
    for regime, options in REGIMES.items():
        with session:
            output = generate(model, inputs, **options)
        found[regime] = summary(output, length, TOP if regime == "greedy" else 8)
    with session.using(beta=[0.0, 8.0, 1.0][: len(inputs["input_ids"])]):
        found["beta of each row"] = summary(generate(model, inputs, do_sample=False), length, 8)
    with session:
        output = generate(model, inputs, do_sample=False, repetition_penalty=1.5)
        found["repetition penalty"] = summary(output, length, 8)
    images = [(picture(1), picture(2)), (PROMPTS[0], PROMPTS[1])]
    if family != "instructblip":
        found["two turns"] = two_turns(family, session)
        found["described"] = session.describe(*map(list, images), max_new_tokens=6)
    return found


def two_turns(family: str, session: Any) -> dict[str, Any]:
    """A second question over the cache that the first one left."""
    one = case(family)
    inputs = one.inputs()
    more = torch.tensor([one.processor.tokenizer(" What else?", add_special_tokens=False)["input_ids"]])
    with session:
        first = generate(one.model, inputs, do_sample=False)
        grown = {"input_ids": torch.cat([first.sequences, more], dim=1)}
        extra = grown["input_ids"].shape[1] - inputs["input_ids"].shape[1]
        for name in twin.GROWING[1:]:
            if name in inputs:
                tail = torch.full((1, extra), int(name == "attention_mask"), dtype=inputs[name].dtype)
                grown[name] = torch.cat([inputs[name], tail], dim=1)
        if "image_grid_thw" in inputs:
            grown["image_grid_thw"] = inputs["image_grid_thw"]
        length = grown["input_ids"].shape[1]
        second = generate(one.model, grown, do_sample=False, past_key_values=first.past_key_values)
    return summary(second, length, 20)


class Wordy(LogitsProcessor):
    """Makes a random model write words: after a piece that begins none, one that does is likelier."""

    def __init__(self, tokenizer: Any, width: int, never: int) -> None:
        pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        self.begins = {at for at, piece in enumerate(pieces) if piece[:1] == "Ġ" and piece[1:].isalpha()}
        self.first = torch.zeros(width)
        self.first[list(self.begins)] = 50.0
        self.never = never

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        last = int(input_ids[0, -1]) if input_ids.shape[1] else None
        scores = scores.clone() if last in self.begins else scores + self.first
        scores[:, self.never] = float("-inf")
        return scores


def halc() -> dict[str, Any]:
    """HALC with a made-up detector and matcher; tokens only, since it writes its own beams."""

    def detect(image: Any, word: str) -> list[tuple[float, float, float, float]]:
        boxes = [(0.1, 0.2, 0.7, 0.9), (0.3, 0.3, 0.5, 0.6), (0.0, 0.0, 1.0, 1.0)]
        return boxes[: len(word) % 4]

    detect.is_oracle = True  # type: ignore[attr-defined]  # what it does not find stays

    def match(image: Any, texts: list[str]) -> list[float]:
        return [sum(ord(one) * (at % 7) for at, one in enumerate(text)) % 101 for text in texts]

    one = case("llava")
    inputs = one.inputs()
    length = inputs["input_ids"].shape[1]
    wordy = Wordy(
        one.processor.tokenizer, one.model.config.text_config.vocab_size, one.model.config.image_token_id
    )
    found: dict[str, Any] = {}
    for beams in (1, 3):
        session = reweigh.decoder(
            "halc",
            one.model,
            one.processor,
            detect=detect,
            match=match,
            is_entity=str.isalpha,
            beams=beams,
        )
        with session.using(pictures=[picture(1, (70, 50))]), torch.no_grad():
            output = one.model.generate(
                **inputs, max_new_tokens=10, do_sample=False, eos_token_id=None, logits_processor=[wordy]
            )
        found[f"{beams} beams"] = output[:, length:].tolist()
    return found


def evidence(family: str) -> dict[str, Any]:
    """DMRR of two pictures at two layers, and the readouts at one."""
    model, inputs = case(family).model, rows(family)
    found: dict[str, Any] = {}
    for readout in ("dmrr", "prob", "zscore"):
        layers = [1, -1] if readout == "dmrr" else [2]
        measured = reweigh.measure(model, inputs, layers=layers, readout=readout)
        found[readout] = [
            None
            if row is None
            else {
                "layers": list(row.layers),
                "positions": list(row.positions),
                "values": [largest(one, 20) for one in row.values],
            }
            for row in measured
        ]
    return found


def checked() -> dict[str, Any]:
    """Which tokens of a text lack evidence."""
    one = case("llava")
    text = "A brown dog sleeps on the red sofa."
    table = reweigh.ReferenceTable.from_pretrained(MADE_UP)
    found = reweigh.check(one.model, one.processor, picture(1), text, table=table, force=True)
    columns = ("token", "start", "end", "evidence", "reference", "strength")
    return {
        "tokens": [{name: getattr(token, name) for name in columns} for token in found.tokens],
        "words": {word.text: word.strength for word in found.words()},
    }


def table_values(table: Any) -> dict[str, Any]:
    """What a reference table says, without versions, times and hashes of weights."""
    identity = table.about["identity"]
    return {
        "layer": table.layer,
        "b0": float(table.b0),
        "tokens": table.tokens.tolist(),
        "references": table.references.tolist(),
        "counts": table.counts.tolist(),
        "identity": {
            name: identity.get(name)
            for name in ("architecture", "blocks", "tokenizer", "vocab_size", "config")
        },
        "made with": {
            name: table.about.get(name)
            for name in ("dtype", "candidates", "rule", "readout", "prompt_sha256", "images")
        },
    }


def calibrated() -> dict[str, Any]:
    """Tables of a calibration of two layers on 12 random pictures."""
    one = case("llava")
    pictures = [(f"{seed}.png", picture(seed, (60, 50))) for seed in range(12)]
    result = reweigh.calibrate(
        one.model, one.processor, pictures, layers=[1, -1], max_new_tokens=12, rule="count-3", show=False
    )
    return {f"layer {layer}": table_values(table) for layer, table in result.tables.items()}


CORE: dict[str, Callable[[], dict[str, Any]]] = {
    **{f"core/decoders/{name}": functools.partial(decoded, name) for name in DECODERS},
    **{f"core/reweigh/{family}": functools.partial(reweighed, family) for family in FAMILIES},
    **{f"core/evidence/{family}": functools.partial(evidence, family) for family in FAMILIES},
    "core/decoders/halc": halc,
    "core/check": checked,
    "core/calibration/llava": calibrated,
}
