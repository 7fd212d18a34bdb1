"""Engines of vLLM on small checkpoints, and what the transformers engine says of the same prompts.

REWEIGH_VLLM_REFERENCE names the folder that ``reference.py`` made.
"""

from __future__ import annotations

import functools
import gc
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

V2 = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether Model Runner V2 runs, on Triton's interpreter; otherwise V1 does."""

TOKENS = 12 if V2 else 40
OFF = {"reweigh": "off"}


def reference_folder(name: str) -> Path:
    """What was made for one model."""
    return Path(os.environ["REWEIGH_VLLM_REFERENCE"]) / name


class Reference:
    """One model: its checkpoint and table, prompts, and the tokens of the transformers engine."""

    def __init__(self, name: str) -> None:
        from PIL import Image

        from reweigh import world

        self.name, folder = name, reference_folder(name)
        kept = json.loads((folder / "cases.json").read_text())
        self.beta, self.layer, self.cases = kept["beta"], kept["layer"], kept["cases"]
        self.pair = kept.get("pair")  # of the embedded checkpoint: two of its prompts, one after the other
        is_world = name == "world"
        self.tokens = min(TOKENS, 40 if is_world else 24)
        self.checkpoint = world.path() if is_world else folder / "checkpoint"
        self.table = world.table_path() if is_world else folder / "table"
        pictures = sorted(folder.glob("*.png"), key=lambda path: int(path.stem))
        self.pictures = [Image.open(path).convert("RGB") for path in pictures]

    def prompts(self, cases: Sequence[int | dict[str, Any]]) -> list[dict[str, Any]]:
        known = [self.cases[case] if isinstance(case, int) else case for case in cases]
        return [
            {
                "prompt": case["prompt"],
                "multi_modal_data": {"image": [self.pictures[one] for one in case["images"]]},
            }
            for case in known
        ]

    def asks(self, kind: str) -> dict[str, Any] | None:
        """The extra arguments that ask for a kind of decoding."""
        return {"plain": OFF, "edited": None, "half": {"reweigh_beta": self.beta / 2}}[kind]


class Engine:
    """A running engine whose answers are compared with a reference."""

    def __init__(self, reference: Reference, llm: Any) -> None:
        self.reference, self.llm = reference, llm

    def answer(self, kinds: Sequence[str], cases: Sequence[int] | None = None, **params: Any) -> list[Any]:
        """Decode cases in one batch, each in its kind of way."""
        from vllm import SamplingParams

        cases = range(len(kinds)) if cases is None else cases
        params = {"temperature": 0, "max_tokens": self.reference.tokens, **params}
        asked = [SamplingParams(**params, extra_args=self.reference.asks(kind)) for kind in kinds]
        return list(self.llm.generate(self.reference.prompts(cases), asked, use_tqdm=False))

    def answer_with(self, extra_args: dict[str, Any] | None, case: int = 0) -> Any:
        """Decode one case with these extra arguments."""
        from vllm import SamplingParams

        params = SamplingParams(temperature=0, max_tokens=self.reference.tokens, extra_args=extra_args)
        return self.llm.generate(self.reference.prompts([case]), params, use_tqdm=False)[0]

    @property
    def worker(self) -> Any:
        """The engine's worker."""
        return self.llm.llm_engine.model_executor.driver_worker.worker

    def check(
        self, kinds: Sequence[str], cases: Sequence[int] | None = None, *, tokens: int | None = None
    ) -> list[Any]:
        """Decode cases in one batch and compare each with the transformers engine, token by token."""
        cases, tokens = range(len(kinds)) if cases is None else cases, tokens or self.reference.tokens
        answers = self.answer(kinds, cases, max_tokens=tokens)
        for kind, case, answer in zip(kinds, cases, answers, strict=True):
            known = self.reference.cases[case]
            assert list(answer.prompt_token_ids) == known["prompt_ids"]
            assert list(answer.outputs[0].token_ids) == known[kind][:tokens], f"{kind}, case {case}"
            if kind == "plain":
                assert told(answer) is None
            else:
                assert told(answer)["edited"]
        return answers


def told(answer: Any) -> dict[str, Any] | None:
    """What an output says of its edit."""
    return (answer.kv_transfer_params or {}).get("reweigh")


@functools.cache
def _override_once() -> None:
    """vLLM looks through all modules for kernels to replace, and stumbles over some when it does so a second time."""
    from vllm.platforms.cpu import CpuPlatform

    replace = functools.cache(CpuPlatform.register_triton_kernel_overrides)
    CpuPlatform.register_triton_kernel_overrides = classmethod(lambda cls: replace())


def section(reference: Reference) -> dict[str, Any]:
    """The settings under which the reference was made."""
    return {"table": str(reference.table), "layer": reference.layer, "beta": reference.beta}


def arguments(
    reference: Reference, *, reweigh: dict[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    """Arguments of an engine on a small machine; ``reweigh`` and ``options`` win."""
    return {
        "model": str(reference.checkpoint),
        "dtype": "float32",
        "enforce_eager": True,
        "distributed_executor_backend": "uni",
        "max_num_seqs": 8,
        "max_model_len": 512,
        "seed": 0,
        "limit_mm_per_prompt": {"image": 3},
        "mm_processor_kwargs": {"use_fast": False},
        "additional_config": {"reweigh": {**section(reference), **(reweigh or {})}},
        **options,
    }


def engine_config(reference: Reference, **options: Any) -> Any:
    """The configuration of an engine, which is checked as it is made."""
    from vllm import EngineArgs

    return EngineArgs(**arguments(reference, **options)).create_engine_config()


@contextmanager
def running(reference: Reference, **options: Any) -> Iterator[Engine]:
    """An engine in this process, shut down at the end."""
    from vllm import LLM

    with stopped():
        llm = LLM(**arguments(reference, **options))
        try:
            yield Engine(reference, llm)
        finally:
            llm.llm_engine.engine_core.shutdown()
            del llm


@contextmanager
def stopped() -> Iterator[None]:
    """Leave nothing behind that would stand in the next engine's way."""
    from vllm.distributed import cleanup_dist_env_and_memory

    _override_once()
    try:
        yield
    finally:
        gc.collect()
        cleanup_dist_env_and_memory()
