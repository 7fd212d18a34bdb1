"""How a loaded model answers a run, with any decoder by name. The part of a run that needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reweigh.runtime.answer import Answer

if TYPE_CHECKING:
    from reweigh.engines.transformers.session import Session
    from reweigh.runs.run import Ask, Batch


def describe_model(model: Any, processor: Any) -> dict[str, Any]:
    """What the record keeps of a loaded model: its identity by content, where and how it computes."""
    from reweigh.families.anatomy import find_anatomy
    from reweigh.families.identity import identify
    from reweigh.families.weights import input_device

    weight = next(model.parameters())
    return {
        "identity": identify(find_anatomy(model), processor).summary(),
        "device": input_device(model).type,
        "weights_dtype": str(weight.dtype).removeprefix("torch."),
        "attention": getattr(model.config, "_attn_implementation", None),
    }


def open_session(model: Any, processor: Any, decoder: str, options: Mapping[str, Any]) -> Session:
    """Tie a named decoder to a model."""
    from reweigh.rivals import decoder as make

    return make(decoder, model, processor, **options)


def make_ask(session: Session, *, template: str | None = None) -> Ask:
    """Make the function that answers batches with a session, as the decoder's authors decode."""

    def ask(batch: Batch) -> list[Answer]:
        return session.answer(
            batch.pictures,
            batch.prompts,
            template=template,
            seed=batch.seed,
            max_new_tokens=batch.max_new_tokens,
            **session.decoder.decoding(),
        )

    return ask
