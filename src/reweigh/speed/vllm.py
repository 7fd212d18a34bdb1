"""What the plugin costs inside vLLM: a step without it, with it switched off, with recalled evidence, and new evidence.

Two engines of one random LLaVA in this process, so that CPU time covers all of an engine's work. Steps are timed one by one;
a run's step is the median of its decoding steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from reweigh.errors import MissingExtraError
from reweigh.speed.figures import Figure
from reweigh.speed.subjects import VOCAB, random_table
from reweigh.speed.timing import Reading, Rounds, Timing, middle

RECALLED_GOAL = 1.01
"""Of a step without the plugin, at V = 32,000."""
MEASURED_GOAL = 1.15
"""Of the head's product over the visual positions."""

PART = "vllm"
PROMPT = "<image> word"


def vllm_figures(
    rounds: Rounds, *, new_tokens: int = 16, width: int = 1536, blocks: int = 6, side: int = 24
) -> Iterator[Figure]:
    """The figures of one random LLaVA with ``side`` x ``side`` visual positions and a vocabulary of 32,000."""
    try:
        import vllm  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("timing inside vLLM", "vllm", "vllm") from error
    with TemporaryDirectory() as name:
        folder = Path(name)
        save_llava(folder / "model", width=width, blocks=blocks, side=side)
        random_table(VOCAB, blocks - 3).save_pretrained(folder / "table")
        bare = _Engine(folder / "model", {}, new_tokens)
        tied = _Engine(
            folder / "model",
            {"reweigh": {"table": str(folder / "table"), "beta": 1.1, "force": True}},
            new_tokens,
        )
        case = f"random LLaVA, V={VOCAB} d={width} {blocks} blocks, {side * side} positions, batch 1"
        yield from _figures(case, bare, tied, rounds, side * side)


def _figures(case: str, bare: _Engine, tied: _Engine, rounds: Rounds, positions: int) -> Iterator[Figure]:
    fresh = count(1)
    variants: dict[str, Callable[[], object]] = {
        "without the plugin": lambda: bare.run(0),
        "switched off": lambda: tied.run(0, {"reweigh": "off"}),
        "recalled evidence": lambda: tied.run(0),
        "new evidence": lambda: tied.run(next(fresh)),
        "head's product": partial(tied.head_product, positions),
    }
    timings = rounds.compare(f"{PART}, {case}", variants)
    base = timings["without the plugin"].notes["step"]
    for name, goal in (
        ("without the plugin", None),
        ("switched off", None),
        ("recalled evidence", RECALLED_GOAL),
    ):
        own = timings[name].notes["step"]
        ratio = None if name == "without the plugin" else _over(own, base)
        cost = middle([1000 * one for one in own])
        yield Figure(PART, f"{case}: a step", name, cost, "ms per step", ratio, "without the plugin", goal)
    yield from _evidence(case, timings)


def _evidence(case: str, timings: dict[str, Timing]) -> Iterator[Figure]:
    """What a prefill that measures takes beyond one that does not, against the head's product it cannot do without."""
    new, off = (timings[name].notes["prefill"] for name in ("new evidence", "switched off"))
    head = timings["head's product"].seconds
    added = [one - other for one, other in zip(new, off, strict=True)]
    where, unit, against = f"{case}: evidence of an image", "ms per image", "head's product"
    yield Figure(PART, where, against, middle([1000 * one for one in head]), unit)
    ratio = _over(added, head)
    cost = middle([1000 * one for one in added])
    yield Figure(PART, where, "new evidence", cost, unit, ratio, against, MEASURED_GOAL)


def _over(own: Any, other: Any) -> Any:
    return middle([one / its for one, its in zip(own, other, strict=True)])


class _Engine:
    """One engine, driven step by step."""

    def __init__(self, model: Path, additional_config: dict[str, Any], new_tokens: int) -> None:
        import os

        from reweigh.engines.vllm.frontend import bear_llvmlite

        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        bear_llvmlite()
        from vllm import LLM

        llm: Any = LLM(
            model=str(model),
            dtype="float32",
            enforce_eager=True,
            max_model_len=1024,
            max_num_seqs=1,
            kv_cache_memory_bytes=1 << 28,
            enable_prefix_caching=False,
            mm_processor_kwargs={"use_fast": False},
            additional_config=additional_config,
        )
        self.engine, self.new_tokens = llm.llm_engine, new_tokens
        self._numbers = count()

    def run(self, picture: int, extra_args: dict[str, Any] | None = None) -> Reading:
        """Decode one request; seconds of its prefill and of a decoding step."""
        import time

        from PIL import Image
        from vllm import SamplingParams

        pixels = np.random.default_rng(picture).integers(0, 256, (336, 336, 3), dtype=np.uint8)
        params = SamplingParams(
            temperature=0,
            max_tokens=self.new_tokens,
            ignore_eos=True,
            detokenize=False,
            extra_args=extra_args,
        )
        prompt = {"prompt": PROMPT, "multi_modal_data": {"image": Image.fromarray(pixels)}}
        self.engine.add_request(str(next(self._numbers)), prompt, params)
        seconds = []
        while self.engine.has_unfinished_requests():
            begin = time.process_time()
            self.engine.step()
            seconds.append(time.process_time() - begin)
        return Reading(prefill=seconds[0], step=median(seconds[1:]))

    @torch.inference_mode()
    def head_product(self, positions: int) -> None:
        """Norm and head over as many states as an image has positions, in the lens's own chunks."""
        worker = self.engine.model_executor.driver_worker.worker
        lens = worker.reweigh.capture.store.lens
        for logits in lens.chunks(torch.zeros(positions, lens.head.in_features)):
            del logits


def save_llava(folder: Path, *, width: int, blocks: int, side: int) -> None:
    """A LLaVA of random weights with a processor, as a checkpoint that vLLM loads."""
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    from reweigh.world.checkpoint import save_checkpoint

    torch.manual_seed(0)
    pixels = 14 * side
    processor = _processor(pixels)
    processor.save_pretrained(folder / "processor")
    vision = CLIPVisionConfig(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=pixels,
        patch_size=14,
    )
    text = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=width,
        intermediate_size=8 * width // 3 // 64 * 64,
        num_hidden_layers=blocks,
        num_attention_heads=width // 128,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
    )
    config = LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=VOCAB - 1,
        image_seq_length=side * side,
        vision_feature_layer=-1,
    )
    save_checkpoint(LlavaForConditionalGeneration(config), folder / "processor", folder, {})


def _processor(pixels: int) -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import CLIPImageProcessor, LlavaProcessor, PreTrainedTokenizerFast

    words = {"<unk>": 0, "<s>": 1, "</s>": 2, **{f"w{number}": number for number in range(3, VOCAB - 1)}}
    core = Tokenizer(WordLevel({**words, "<image>": VOCAB - 1}, unk_token="<unk>"))
    core.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<unk>",
        extra_special_tokens={"image_token": "<image>"},
    )
    square = {"height": pixels, "width": pixels}
    images = CLIPImageProcessor(size={"shortest_edge": pixels}, crop_size=square)
    return LlavaProcessor(
        image_processor=images,
        tokenizer=tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )
