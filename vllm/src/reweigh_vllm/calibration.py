"""Calibrate inside vLLM: the observations of the transformers engine at vLLM's throughput."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from reweigh.calibration.settings import (
    CalibrationSettings,
    layers_to_read,
    record_of,
    stored_greedy_settings,
)
from reweigh.families.prompts import render
from reweigh.tables.observations import ImageObservations, count_candidates
from reweigh_vllm.core import (
    CHUNK,
    CalibrationError,
    InputError,
    UnsupportedError,
    nearest_point,
)
from reweigh_vllm.plugin import require_plugin
from reweigh_vllm.table import blocks_of, dtype_of, identify_model, rows_of

PENALTY = "repetition_penalty"
"""The one setting of a checkpoint's greedy decoding that vLLM applies as transformers does."""


class VllmJob:
    """A model that vLLM loads, tied to the settings of a calibration; it decodes without edits.

    Args:
        model: A Hub id or a checkpoint folder.
        settings: What is read, and how.
        name: What tables call the model.
        engine: Further arguments of vLLM's ``LLM``: ``dtype``, ``tensor_parallel_size``, ... Without a ``dtype`` a CPU
            computes in float32, as the transformers engine loads models there.
    """

    def __init__(
        self, model: str, settings: CalibrationSettings, *, name: str, engine: Mapping[str, Any]
    ) -> None:
        if settings.readout != "dmrr":
            raise UnsupportedError(
                f"the readout {settings.readout} is not observed inside vLLM",
                hint="use the transformers engine for it",
            )
        if (settings.dtype, settings.chunk) != ("native", CHUNK):
            raise UnsupportedError(
                "vLLM ranks its own logits where it runs: dtype and chunk cannot be set",
                hint="use the transformers engine for them",
            )
        try:
            from vllm import LLM
        except ImportError as error:
            raise UnsupportedError("vLLM is not installed", hint="pip install reweigh-vllm") from error
        from vllm.platforms import current_platform
        from vllm.transformers_utils.processor import cached_processor_from_config

        require_plugin()
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # observations do not cross processes
        options = dict(engine)
        if current_platform.is_cpu() and options.get("dtype", "auto") == "auto":
            options["dtype"] = "float32"
        self.name, self.settings = name, settings
        self.layers = _layers(model, settings, engine)
        options["additional_config"] = {"reweigh": {"observe": list(self.layers)}}
        self.llm: Any = LLM(model=model, seed=0, **options)
        self.config = self.llm.llm_engine.vllm_config
        model_config = self.config.model_config
        self.processor = cached_processor_from_config(model_config)
        self.generation = stored_greedy_settings(
            model_config.model, "vLLM", known=[PENALTY], revision=model_config.revision
        )

    def about(self) -> dict[str, Any]:
        """Return what every shard of this calibration shares, and every table carries."""
        model = self.config.model_config
        return record_of(
            self.settings,
            self.processor,
            identity=replace(identify_model(model, self.config.load_config), model_id=self.name),
            layers=self.layers,
            lens={"lens": "native", "dtype": dtype_of(model), "chunk": CHUNK, "rows": rows_of(model)},
            generation=self.generation,
            engine="vllm",
        )

    def inputs(self, pictures: Sequence[Any]) -> dict[str, Any]:
        """Build vLLM's inputs: the prompt as the transformers engine writes it, and the picture."""
        family = SimpleNamespace(config=self.config.model_config.hf_config)
        text = render(family, self.processor, self.settings.prompt, True, self.settings.template)
        return {"prompts": [{"prompt": text, "multi_modal_data": {"image": one}} for one in pictures]}

    def observe(self, keys: Sequence[str], inputs: dict[str, Any]) -> list[ImageObservations]:
        """Decode some pictures greedily and turn each into observations."""
        from vllm import SamplingParams

        params = SamplingParams(
            temperature=0, max_tokens=self.settings.max_new_tokens, detokenize=False, **self.generation
        )
        try:
            answers = self.llm.generate(inputs["prompts"], params, use_tqdm=False)
        except ValueError as error:
            raise CalibrationError(
                f"vLLM refused one of the images {', '.join(keys)} ({error})",
                hint="calibrate without it, in another output folder",
            ) from error
        taken = self.llm.collective_rpc("reweigh_take")[0]
        taken = {name.rpartition("-")[0]: one for name, one in taken.items()}
        return [_row(key, answer, taken) for key, answer in zip(keys, answers, strict=True)]


def _layers(model: str, settings: CalibrationSettings, engine: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the blocks to read, 0-based and ascending; before vLLM loads the model, which is told to observe them."""
    from transformers import AutoConfig

    named = {name: engine[name] for name in ("revision", "trust_remote_code") if name in engine}
    config: Any = AutoConfig.from_pretrained(model, **named)
    blocks = blocks_of(config)
    layers = layers_to_read(settings, nearest_point(config.model_type, blocks))
    wrong = [layer for layer in layers if not -blocks <= layer < blocks]
    if wrong:
        raise InputError(f"layer {wrong[0]} is out of range: the model has {blocks} decoder blocks")
    return tuple(sorted({layer % blocks for layer in layers}))


def _row(key: str, answer: Any, taken: Mapping[str, Any]) -> ImageObservations:
    reason, steps, evidence = taken.get(answer.request_id, ("the worker kept nothing for it", {}, None))
    count = len(answer.outputs[0].token_ids)
    if reason is not None or evidence is None or any(step not in steps for step in range(count)):
        raise CalibrationError(f"{key} could not be observed: {reason or 'some of its steps were not seen'}")
    ids, keep = (np.stack([steps[step][part] for step in range(count)]) for part in (0, 1))
    token, times = count_candidates(ids, keep & (ids < evidence.shape[1]))  # an added token has no evidence
    return ImageObservations(key, token, times, evidence[:, token])
