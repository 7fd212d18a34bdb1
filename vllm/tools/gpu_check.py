"""Check that edits inside vLLM match the transformers engine on this machine's accelerator; prints a report to share.

``scripts/gpu-check MODEL TABLE`` runs the transformers engine once for each type, then vLLM under each way of running it,
each in a process of its own, on the same pictures. 16-bit types round differently in two programs, so texts may diverge:
base and edited tokens are both compared with the transformers engine, and edits must not agree less than the base does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

QUESTION = "Please describe this image in detail."
MARGIN = 0.1
"""How much lower the agreement of edited tokens may be than that of base tokens, in sixteen bits."""

Texts = dict[str, list[list[int]]]


def ways(count: int, *, small: bool) -> dict[str, tuple[dict[str, Any], dict[str, str]]]:
    """Ways of running vLLM with ``count`` devices: arguments of the engine, and the environment."""
    eager: dict[str, Any] = {"enforce_eager": True}
    found: dict[str, tuple[dict[str, Any], dict[str, str]]] = {"eager": (eager, {}), "compiled": ({}, {})}
    if small:
        return found
    found["without asynchronous scheduling"] = ({"async_scheduling": False}, {})
    found["Model Runner V1"] = ({}, {"VLLM_USE_V2_MODEL_RUNNER": "0"})
    found["slept and woken"] = ({"enable_sleep_mode": True}, {})
    found["no wait for the device"] = ({}, {"VLLM_GPU_SYNC_CHECK": "error"})
    if count > 1:
        found["two tensor-parallel workers"] = ({"tensor_parallel_size": 2}, {})
    return found


def pictures(folder: Path | None, count: int) -> list[Any]:
    """The first pictures of a folder, or drawn scenes."""
    if folder is None:
        from reweigh.world.scenes import scenes

        return [scene.image() for scene in scenes("evaluation", count)]
    from PIL import Image

    return [Image.open(path).convert("RGB") for path in sorted(folder.iterdir())[:count]]


def with_transformers(given: argparse.Namespace, dtype: str) -> Texts:
    """What the transformers engine says, base and edited."""
    from transformers import AutoProcessor

    import reweigh
    from reweigh.families.load import load

    model, processor = load(given.model, dtype=dtype)
    if _is_pil(given.table):
        processor = AutoProcessor.from_pretrained(given.model, use_fast=False)
    rw = reweigh.attach(model, processor, table=given.table)
    found: Texts = {"base": [], "edited": []}
    for picture in pictures(given.images, given.count):
        inputs = rw.prepare([picture], [QUESTION])
        for name, beta in (("base", 0.0), ("edited", None)):
            with rw.using() if beta is None else rw.using(beta=beta):
                ids = model.generate(**inputs, max_new_tokens=given.tokens, do_sample=False)
            found[name].append(ids[0, inputs["input_ids"].shape[1] :].tolist())
    return found


def with_vllm(given: argparse.Namespace, dtype: str, arguments: dict[str, Any]) -> Texts:
    """What vLLM says, base and edited rows in one batch."""
    from types import SimpleNamespace

    from vllm import LLM, SamplingParams

    from reweigh.families.prompts import render

    options: dict[str, Any] = (
        {"max_model_len": 4096} if not given.small else {"max_model_len": 512, "max_num_seqs": 8}
    )
    if _is_pil(given.table):
        options["mm_processor_kwargs"] = {"use_fast": False}
    section = {"reweigh": {"table": str(given.table)}}
    llm = LLM(model=str(given.model), dtype=dtype, seed=0, additional_config=section, **options, **arguments)
    if arguments.get("enable_sleep_mode"):
        llm.sleep(level=1)
        llm.wake_up()
    config = SimpleNamespace(config=llm.llm_engine.vllm_config.model_config.hf_config)
    from vllm.transformers_utils.processor import cached_processor_from_config

    processor = cached_processor_from_config(llm.llm_engine.vllm_config.model_config)
    text = render(config, processor, QUESTION, True, None)
    prompts = [
        {"prompt": text, "multi_modal_data": {"image": one}} for one in pictures(given.images, given.count)
    ]
    found: Texts = {}
    for name, extra in (("base", {"reweigh": "off"}), ("edited", None)):
        params = SamplingParams(temperature=0, max_tokens=given.tokens, extra_args=extra)
        answers = llm.generate(prompts, params, use_tqdm=False)
        found[name] = [list(answer.outputs[0].token_ids) for answer in answers]
        told = [(answer.kv_transfer_params or {}).get("reweigh") for answer in answers]
        if name == "edited" and not all(one and one["edited"] for one in told):
            raise SystemExit(f"not every request was edited: {told}")
    return found


def _is_pil(table: Path) -> bool:
    from reweigh.tables.table import ReferenceTable

    images = ReferenceTable.from_pretrained(table).about["identity"]["images"]
    return bool(images.get("backend") == "pil")


def agreement(one: list[list[int]], other: list[list[int]]) -> float:
    """The share of tokens before two programs' texts diverge; texts that end together agree to the end."""
    same = total = 0
    for mine, theirs in zip(one, other, strict=True):
        total += max(len(mine), len(theirs))
        same += next(
            (k for k, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b),
            min(len(mine), len(theirs)),
        )
    return same / total if total else 1.0


def verdict(dtype: str, base: float, edited: float) -> str:
    """Whether edits agree as well as they can."""
    is_fine = edited >= base - MARGIN if dtype != "float32" else base == edited == 1.0
    return "ok" if is_fine else "DIFFERS"


def _child(
    given: argparse.Namespace, program: str, dtype: str, way: dict[str, Any], env: dict[str, str]
) -> Any:
    """The texts of one program in a process of its own, or the last line it printed if it failed."""
    known = {**vars(given), "program": program, "dtype": dtype, "arguments": way}
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(known, default=str)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return ([line for line in done.stderr.splitlines() if line.strip()] or ["no message"])[-1][:200]
    return json.loads(done.stdout.splitlines()[-1])


def _run_child(text: str) -> None:
    known = json.loads(text)
    for name in ("table", "images"):
        known[name] = None if known[name] in (None, "None") else Path(known[name])
    given = argparse.Namespace(**known)
    if given.program == "transformers":
        found = with_transformers(given, given.dtype)
    else:
        found = with_vllm(given, given.dtype, given.arguments)
    sys.stdout.write(f"\n{json.dumps(found)}\n")


def report(given: argparse.Namespace) -> bool:
    """Print the report as it grows; return whether everything agrees."""
    import torch
    import vllm

    count = torch.cuda.device_count()
    device = torch.cuda.get_device_name(0) if count else "CPU"
    say = partial(print, flush=True)
    say(f"vLLM {vllm.__version__}, torch {torch.__version__}, {device} x {max(count, 1)}, {given.model}")
    say("\n| type | way | base tokens agree | edited tokens agree | |\n|---|---|---:|---:|---|")
    fine = True
    for dtype in ("float32",) if given.small else ("bfloat16", "float16"):
        reference = _child(given, "transformers", dtype, {}, {})
        for name, (arguments, environment) in ways(count, small=given.small).items():
            found = reference
            if not isinstance(found, str):
                found = _child(given, "vllm", dtype, arguments, environment)
            if isinstance(found, str):
                say(f"| {dtype} | {name} | | | FAILED: {found} |")
                fine = False
                continue
            base, edited = (agreement(found[kind], reference[kind]) for kind in ("base", "edited"))
            said = verdict(dtype, base, edited)
            fine = fine and said == "ok"
            say(f"| {dtype} | {name} | {base:.3f} | {edited:.3f} | {said} |")
    return fine


def main() -> None:
    """Run the check, or one process of it."""
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        _run_child(sys.argv[1])
        return
    parser = argparse.ArgumentParser(prog="scripts/gpu-check", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("table", type=Path)
    parser.add_argument("--images", type=Path, help="a folder of pictures; drawn scenes otherwise")
    parser.add_argument("--count", type=int, default=8, help="pictures")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of each answer")
    parser.add_argument("--small", action="store_true", help="float32 on a CPU, two ways")
    sys.exit(0 if report(parser.parse_args()) else 1)


if __name__ == "__main__":
    main()
