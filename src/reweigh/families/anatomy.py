"""Find the parts of a vision-language model that the method reads: blocks, final norm, head and image tokens.

One rule finds them in every family whose decoder sees the image as positions of its own sequence; families whose image
enters elsewhere are refused by name. Wrappers of torch.compile and peft are removed first, because hooks and ``generate``
must act on the model inside. Knows nothing about ranks, tables or decoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any

from torch import nn

from reweigh.errors import InputError, UnsupportedError
from reweigh.families.catalogue import Family, family_of, native_rows
from reweigh.families.positions import placeholder_ids
from reweigh.method.lens import CHUNK, Lens, head_rows

if TYPE_CHECKING:
    from reweigh.tables.key import ModelKey

COMPILED = "_orig_mod"
"""Where torch.compile keeps the module it wraps."""


def unwrap(model: Any) -> tuple[Any, bool]:
    """Return the model inside the wrappers of torch.compile and peft, and whether torch.compile was among them.

    Raises:
        UnsupportedError: A wrapper changes what the model computes.
    """
    compiled = False
    while True:
        modules = getattr(model, "_modules", None) or {}
        if COMPILED in modules:
            model, compiled = modules[COMPILED], True
        elif _comes_from("peft", model):
            model = _inside_peft(model, modules)
        else:
            return model, compiled


def is_mlx(model: Any) -> bool:
    """Whether a model is one of MLX; nothing of MLX is imported to tell."""
    return _comes_from("mlx", model)


def _comes_from(package: str, model: Any) -> bool:
    return any(kind.__module__.partition(".")[0] == package for kind in type(model).__mro__)


def _inside_peft(model: Any, modules: dict[str, Any]) -> Any:
    """Return the model inside a PeftModel, which holds a tuner as ``base_model``, or inside the tuner."""
    name = type(model).__name__
    kinds = set()
    for config in (getattr(model, "peft_config", None) or {}).values():
        kind = str(getattr(config.peft_type, "value", config.peft_type))
        if getattr(config, "is_prompt_learning", False) or kind == "XLORA":
            kinds.add(kind)
    if kinds:
        raise UnsupportedError(
            f"{name} uses {', '.join(sorted(kinds))}, which acts in the wrapper's own forward: the model inside "
            "would be read without it",
            hint="merge it into the weights, or use an adapter that lives in the layers (LoRA and similar)",
        )
    inner = modules.get("base_model", modules.get("model"))
    if inner is None:
        raise UnsupportedError(
            f"{name} of peft has no model as .base_model or .model", hint="pass the model inside it"
        )
    return inner


NORM_NAMES = ("norm", "final_layernorm", "final_layer_norm", "embedding_norm", "ln_f", "norm_f")


@dataclass(frozen=True, eq=False)
class Anatomy:
    """The parts of one loaded model.

    Attributes:
        model: The model itself, without wrappers of torch.compile or peft.
        family: The record of its family.
        language_model: The module whose forward ``generate`` drives and whose output carries the logits.
        blocks: The decoder blocks, 0-based as in the paper.
        norm: The final norm, applied exactly once before the head.
        head: The output embedding.
        image_tokens: Ids that stand for image (or video frame) content in ``input_ids``.
        compiled: Whether a wrapper of torch.compile was removed, whose graphs may not contain the hooks.
    """

    model: Any
    family: Family
    language_model: Any
    blocks: nn.ModuleList
    norm: nn.Module
    head: Any
    image_tokens: tuple[int, ...]
    compiled: bool = False

    @property
    def config(self) -> Any:
        """The model's own configuration."""
        return self.model.config

    @property
    def is_causal(self) -> bool:
        """Whether text after the last image is known not to change the states of visual positions."""
        return self.family.causal

    @cached_property
    def shares_keys(self) -> bool:
        """Whether late blocks reuse the keys of earlier ones; transformers runs those for the last columns only.

        It does so for a number of ``logits_to_keep``, not for a tensor of columns.
        """
        text = (
            self.config.get_text_config(decoder=True)
            if hasattr(self.config, "get_text_config")
            else self.config
        )
        return bool(getattr(text, "num_kv_shared_layers", 0))

    @cached_property
    def vocab_size(self) -> int:
        """Rows of the head, those beyond the tokenizer included."""
        return head_rows(self.head)

    @cached_property
    def rows(self) -> int:
        """Rows of the head that take part in ranks: those of the language backbone's own vocabulary."""
        return native_rows(self.family, self.vocab_size)

    def lens(self, *, dtype: str = "native", chunk: int = CHUNK) -> Lens:
        """Return the lens of the model's norm and head."""
        return Lens(self.norm, self.head, dtype=dtype, chunk=chunk, rows=self.rows)

    def check_layer(self, layer: Any) -> int:
        """Return a valid 0-based block index; negative values count from the last block."""
        count = len(self.blocks)
        if (
            isinstance(layer, bool)
            or not isinstance(layer, Integral)
            or int(layer) not in range(-count, count)
        ):
            raise InputError(
                f"layer {layer!r} is out of range: {type(self.model).__name__} has {count} decoder blocks",
                hint=f"use a 0-based block from 0 to {count - 1}, or -1 for the last",
            )
        return int(layer) % count

    def identify(self, processor: Any) -> ModelKey:
        """Identify the model, with its processor."""
        from reweigh.families.identity import identify

        return identify(self, processor)

    def watch(self, processor: Any) -> Any:
        """Return an object whose ``changed`` reports changes of the model or processor."""
        from reweigh.families.identity import Watch

        return Watch(self.model, processor)

    def exit_of(self, layer: int) -> nn.Module:
        """Return the module that receives block ``layer``'s output: the next block, or the final norm after the last.

        Reading there rather than at the block's output includes what some families add between blocks (DeepStack).
        Layer -1 is the input of the first block, i.e. the embeddings.
        """
        return self.norm if layer == len(self.blocks) - 1 else self.blocks[layer + 1]


def find_anatomy(model: Any, *, images: bool = True) -> Anatomy:
    """Find the parts of a model, or say why it is not supported; ``images=False`` accepts a text-only model."""
    if is_mlx(model):
        raise UnsupportedError(
            f"{type(model).__name__} is an MLX model, which is served by `attach` and `calibrate` only",
            hint="load it with transformers for anything else",
        )
    model, compiled = unwrap(model)
    config = getattr(model, "config", None)
    name = type(model).__name__
    if config is None:
        raise UnsupportedError(f"{name} has no config: only transformers models are supported")
    family = family_of(config)
    if family.refused is not None:
        raise UnsupportedError(
            f"{name} {family.refused}", hint="docs/families.md lists the supported families"
        )
    text = getattr(model, "language_model", None)
    if getattr(config, "is_encoder_decoder", False) or getattr(
        getattr(text, "config", None), "is_encoder_decoder", False
    ):
        raise UnsupportedError(
            f"{name} is an encoder-decoder: its decoder never sees the image positions",
            hint="use a checkpoint with a decoder-only language model",
        )
    head = next(
        (
            found
            for part in (model, text)
            if part is not None
            and hasattr(part, "get_output_embeddings")
            and (found := part.get_output_embeddings()) is not None
        ),
        None,
    )
    if head is None:
        raise UnsupportedError(f"{name} has no output head", hint="load it with AutoModelForImageTextToText")
    blocks, norm = _blocks_and_norm(model)
    tokens = tuple(sorted(placeholder_ids(config)))
    if images and not tokens:
        raise UnsupportedError(
            f"the configuration of {name} names no image token, so image positions cannot be found",
            hint="if its processor knows one: model.config.image_token_id = processor.image_token_id",
        )
    language_model = getattr(model, "language_model", model) if family.delegates else model
    return Anatomy(model, family, language_model, blocks, norm, head, tokens, compiled)


def _blocks_and_norm(model: Any) -> tuple[nn.ModuleList, nn.Module]:
    for module in _decoders(model):
        blocks = getattr(module, "layers", None)
        norm = next(
            (part for name in NORM_NAMES if isinstance(part := getattr(module, name, None), nn.Module)), None
        )
        if isinstance(blocks, nn.ModuleList) and len(blocks) and norm is not None:
            return blocks, norm
    raise UnsupportedError(
        f"no decoder with .layers and a final norm ({', '.join(NORM_NAMES)}) was found in {type(model).__name__}",
        hint="its structure is unusual; please report the class",
    )


def _decoders(model: Any) -> Iterator[nn.Module]:
    """Yield candidates for the text decoder, most specific first."""
    roots = [model.get_decoder()] if hasattr(model, "get_decoder") else []
    roots += [
        part for name in ("language_model", "text_model") if (part := getattr(model, name, None)) is not None
    ]
    for root in [*roots, model]:
        todo, seen = [root], set()
        while todo:
            module = todo.pop(0)
            if id(module) in seen or not isinstance(module, nn.Module):
                continue
            seen.add(id(module))
            yield module
            names = ("language_model", "text_model", "model", "decoder")
            todo += [part for name in names if (part := getattr(module, name, None)) is not None]
