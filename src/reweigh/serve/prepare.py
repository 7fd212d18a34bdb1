"""From a conversation to the model's inputs for one row, and from rows to the inputs of a batch.

Each row is prepared alone, before it waits: its length is known, errors are reported at once, and a batch is
put together by padding on the left, as the processor itself would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reweigh.engines.transformers.recall import OF_THE_PROMPT
from reweigh.errors import InputError, ReweighError
from reweigh.families.positions import placeholder_ids
from reweigh.families.processor import chat_template_of, tokenizer_of
from reweigh.families.prompts import encode, render, render_chat
from reweigh.serve.wire import ImagePart, Message

if TYPE_CHECKING:
    from PIL.Image import Image

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """One row, ready for the model.

    Attributes:
        inputs: What its processor gave, one row.
        key: Under which its evidence is kept; ``None`` without an image.
        prompt_tokens: Tokens of the prompt, those of images included.
    """

    inputs: Mapping[str, Any]
    key: str | None
    prompt_tokens: int

    @property
    def shapes(self) -> Shapes | None:
        """Shapes that rows must share to be stacked: empty without images, ``None`` if it cannot be stacked."""
        beside = {name: value for name, value in self.inputs.items() if name not in OF_THE_PROMPT}
        if not all(isinstance(value, Tensor) for value in beside.values()):
            return None
        return tuple(sorted((name, _shape(value)) for name, value in beside.items()))


def prepare_inputs(
    model: Any,
    processor: Any,
    messages: Sequence[Message],
    pictures: Sequence[Image],
    *,
    template: str | None = None,
) -> dict[str, Any]:
    """The inputs of one conversation; an error of the processor becomes an ``InputError``."""
    _refuse_image_tokens(model, processor, messages)
    try:
        text = _text(model, processor, messages, len(pictures), template)
        return encode(model, processor, [text], [list(pictures)])
    except ReweighError:
        raise
    except Exception as error:  # templates and processors raise all kinds of exceptions on odd input
        raise InputError(
            f"the model's processor refuses this conversation ({type(error).__name__})",
            hint="turns alternate between user and assistant",
        ) from error


def _refuse_image_tokens(model: Any, processor: Any, messages: Sequence[Message]) -> None:
    """Refuse a text with the model's image token, which would be a placeholder without a picture."""
    tokenizer = tokenizer_of(processor)
    words = [str(tokenizer.convert_ids_to_tokens(token)) for token in placeholder_ids(model.config)]
    for message in messages:
        for part in message.parts():
            if not isinstance(part, ImagePart) and any(word in part.text for word in words):
                raise InputError(
                    "a text contains the model's image token", hint="send images as parts of type image_url"
                )


def _text(
    model: Any, processor: Any, messages: Sequence[Message], pictures: int, template: str | None
) -> str:
    if template is None and chat_template_of(processor):
        return render_chat(processor, [_turn(message) for message in messages])
    if len(messages) != 1 or messages[0].role != "user" or pictures > 1:
        raise InputError(
            "this model has no chat template, so it takes one user message with at most one image",
            hint="leave system messages, earlier turns and further images out",
        )
    words = [part.text for part in messages[0].parts() if not isinstance(part, ImagePart)]
    return render(model, processor, "\n".join(words), pictures > 0, template)


def _turn(message: Message) -> dict[str, Any]:
    role = "system" if message.role == "developer" else message.role
    parts = [
        {"type": "image"} if isinstance(part, ImagePart) else {"type": "text", "text": part.text}
        for part in message.parts()
    ]
    return {"role": role, "content": parts}


def stackable(one: Shapes | None, other: Shapes | None) -> bool:
    """Whether two rows can be decoded in one batch."""
    return one is not None and other is not None and (not one or not other or one == other)


def stack(rows: Sequence[Prepared], pad: int) -> dict[str, Any]:
    """The inputs of a batch, padded on the left."""
    if len(rows) == 1:
        return dict(rows[0].inputs)
    names = list(dict.fromkeys(name for row in rows for name in row.inputs))
    width = max(row.inputs["input_ids"].shape[1] for row in rows)
    return {
        name: torch.cat([_padded(row.inputs, name, width, pad if name == "input_ids" else 0) for row in rows])
        if name in OF_THE_PROMPT
        else _joined([row.inputs[name] for row in rows if name in row.inputs])
        for name in names
    }


def _padded(inputs: Mapping[str, Any], name: str, width: int, fill: int) -> Tensor:
    value = inputs.get(name)
    ids: Tensor = inputs["input_ids"]
    own = torch.zeros_like(ids) if value is None else value
    return torch.nn.functional.pad(own, (width - own.shape[1], 0), value=fill)


def _joined(values: list[Tensor]) -> Tensor:
    """Pictures one after the other; those of several tiles (n, tiles, ...) get as many as the largest, of zeros."""
    if values[0].ndim == 5:
        tiles = max(value.shape[1] for value in values)
        values = [
            torch.nn.functional.pad(value, (0, 0, 0, 0, 0, 0, 0, tiles - value.shape[1])) for value in values
        ]
    return torch.cat(values)


def _shape(value: Tensor) -> tuple[int, ...]:
    return tuple(value.shape[2:] if value.ndim == 5 else value.shape[1:])
