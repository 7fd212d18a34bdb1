"""Calibration's view of a model inside vLLM: greedy descriptions, the candidates of every step, each image's evidence."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from reweigh.engines.vllm.pairing import blocks_of, dtype_of, identify_model
from reweigh.engines.vllm.plugin import require_plugin
from reweigh.errors import CalibrationError, InputError, MissingExtraError, UnsupportedError
from reweigh.families.prompts import render
from reweigh.tables.identity import Identity
from reweigh.tables.observations import ImageObservations, count_candidates

PENALTY = "repetition_penalty"
"""The one setting of a checkpoint's greedy decoding that vLLM applies as transformers does."""


class Observer:
    """An engine that decodes without edits and keeps what a calibration needs.

    Args:
        model: A Hub id or a checkpoint folder.
        layers: Blocks to read.
        options: Further arguments of vLLM's ``LLM``. Without a ``dtype`` a CPU computes in float32.
        name: What tables call the model.
    """

    def __init__(self, model: str, layers: Sequence[int], options: Mapping[str, Any], *, name: str) -> None:
        try:
            from vllm import LLM
        except ImportError as error:
            raise MissingExtraError("calibrating inside vLLM", "vllm", "vllm") from error
        require_plugin()
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # observations are handed over within one process
        self.name = name
        section = {"reweigh": {"observe": list(layers)}}
        self.llm: Any = LLM(model=model, seed=0, **{**_on_cpu(options), "additional_config": section})
        config = self.llm.llm_engine.vllm_config
        self.model_config, self.load_config = config.model_config, config.load_config
        self.config = self.model_config.hf_config
        self.processor = _processor(self.model_config)

    @property
    def dtype(self) -> str:
        """The type of the logits that are ranked."""
        return dtype_of(self.model_config)

    def identity(self) -> Identity:
        """What the tables record of the model."""
        return replace(identify_model(self.model_config, self.load_config), model_id=self.name)

    def generation_config(self) -> Any:
        """The checkpoint's own generation settings."""
        from transformers import GenerationConfig

        try:
            return GenerationConfig.from_pretrained(
                self.model_config.model, revision=self.model_config.revision
            )
        except OSError:  # it has none
            return GenerationConfig()

    def prompts(self, pictures: Sequence[Any], question: str, template: str | None) -> list[dict[str, Any]]:
        """vLLM's inputs: the question as the transformers engine writes it, and the picture."""
        family = SimpleNamespace(config=self.config)
        text = render(family, self.processor, question, True, template)
        return [{"prompt": text, "multi_modal_data": {"image": picture}} for picture in pictures]

    def observe(
        self,
        keys: Sequence[str],
        prompts: Sequence[Mapping[str, Any]],
        *,
        max_new_tokens: int,
        generation: Mapping[str, Any],
    ) -> list[ImageObservations]:
        """Decode some pictures greedily and turn each into its observations."""
        from vllm import SamplingParams

        unknown = sorted(set(generation) - {PENALTY})
        if unknown:
            raise UnsupportedError(
                f"the checkpoint decodes greedily with {', '.join(unknown)}, which vLLM does not do as transformers does",
                hint="calibrate with the transformers engine",
            )
        params = SamplingParams(temperature=0, max_tokens=max_new_tokens, detokenize=False, **generation)
        try:
            answers = self.llm.generate(list(prompts), params, use_tqdm=False)
        except ValueError as error:
            raise CalibrationError(
                f"vLLM refused one of the images {', '.join(keys)} ({error})",
                hint="calibrate without it, in another output folder",
            ) from error
        taken = {
            name.rpartition("-")[0]: one for name, one in self.llm.collective_rpc("reweigh_take")[0].items()
        }
        return [_row(key, answer, taken) for key, answer in zip(keys, answers, strict=True)]


def _on_cpu(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with float32 on a CPU where no type is named, as the transformers engine loads models there."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu() and options.get("dtype", "auto") == "auto":
        return {**options, "dtype": "float32"}
    return dict(options)


def _processor(model_config: Any) -> Any:
    from vllm.transformers_utils.processor import cached_processor_from_config

    return cached_processor_from_config(model_config)


def check_layers(config: Any, layers: Sequence[int]) -> tuple[int, ...]:
    """Valid 0-based blocks of a configuration; negative ones count from the last."""
    blocks = blocks_of(config)
    wrong = [layer for layer in layers if not -blocks <= layer < blocks]
    if wrong:
        raise InputError(f"layer {wrong[0]} is out of range: the model has {blocks} decoder blocks")
    return tuple(sorted({layer % blocks for layer in layers}))


def _row(key: str, answer: Any, taken: Mapping[str, Any]) -> ImageObservations:
    reason, steps, evidence = taken.get(answer.request_id, ("the worker kept nothing of it", {}, None))
    count = len(answer.outputs[0].token_ids)
    if reason is not None or evidence is None or any(step not in steps for step in range(count)):
        raise CalibrationError(f"{key} could not be observed: {reason or 'some of its steps were not seen'}")
    ids, keep = (np.stack([steps[step][part] for step in range(count)]) for part in (0, 1))
    token, times = count_candidates(ids, keep)
    return ImageObservations(key, token, times, evidence[:, token])
