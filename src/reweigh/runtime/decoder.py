"""What an engine and a decoder share: the request of a caller, the forward passes it leads to, the decoder's hooks.

A caller opens a :class:`Request`; every forward pass of the model in the caller's thread or task then reaches the
request's :class:`Decoder` as a :class:`ForwardPass`, and the decoder may return other logits. Knows no method and no
model library.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from reweigh.errors import InputError
from reweigh.files.artifacts import sha256_file

if TYPE_CHECKING:
    from reweigh.engines.transformers.session import Session
    from reweigh.engines.transformers.tap import Tap
    from reweigh.engines.transformers.trail import Trail
    from reweigh.families.anatomy import Anatomy

_keys = count(1)

GREEDY: Mapping[str, Any] = {"do_sample": False, "num_beams": 1}
SAMPLING: Mapping[str, Any] = {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0}
"""Plain sampling; ``top_k=0`` because transformers would otherwise keep 50 tokens."""


class Request:
    """What one caller wants: a decoder, and its settings for this caller alone.

    A request is open in the thread or task that opened it, and in no other. A decoder with settings of its own makes
    a subclass in ``Decoder.request``.

    Attributes:
        decoder: What edits the caller's passes.
        layers: Blocks whose output they need; the decoder's unless given.
    """

    def __init__(self, decoder: Decoder, layers: frozenset[int] | None = None) -> None:
        self.decoder = decoder
        self.layers = decoder.layers if layers is None else layers
        self.number = next(_keys)


@dataclass(slots=True)
class ForwardPass:
    """One forward pass, as a decoder sees it.

    Attributes:
        request: Whose pass it is.
        arguments: The forward's arguments by name.
        past: Columns that were in the cache before this pass.
        length: Columns of this pass.
        repeat: Forward rows per prompt row (beams, ``num_return_sequences``).
        states: Residual stream (B, T, d) after each block asked for.
        logits: Raw logits (B, K, V) of the last K columns of this pass.
        trail: What is known of the sequence so far.
        cache: The key-value cache after this pass, if any.
        inputs: What ``generate`` was called with, by name; the forward's own arguments outside ``generate``.
        start: Column at which the prompt in ``inputs`` begins (after a kept cache).
        end: Column after the prompt; what follows it was generated.
        is_step: Whether it is one more token of a generation under way, which cannot show a new image.
        layers: The blocks asked for.
    """

    request: Request
    arguments: Mapping[str, Any]
    past: int
    length: int
    repeat: int
    states: dict[int, Tensor]
    logits: Tensor
    trail: Trail
    cache: Any
    inputs: Mapping[str, Any] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    is_step: bool = False
    layers: frozenset[int] = frozenset()

    @property
    def rows(self) -> int:
        """Forward rows."""
        return self.repeat * len(self.trail.columns)

    def new_columns(self) -> list[list[int]]:
        """For each prompt row, the visual columns first seen in this pass, relative to its start; empty if none."""
        return self.trail.unseen(self.past, self.length)

    def start_of(self, row: int) -> int:
        """Index into the K logits of a prompt row's first column at or after its last visual one."""
        columns = self.trail.columns[row]
        first = self.past + self.length - self.logits.shape[1]
        return max(0, columns[-1] - first) if columns else self.logits.shape[1]

    def edited_columns(self) -> int:
        """How many of the pass's last columns a decoder edits: one where the prompt ends, all K of a later pass."""
        return 1 if self.past + self.length <= self.end else int(self.logits.shape[1])

    def image_rows(self) -> Tensor:
        """Which forward rows have an image, bool (B,); the others are decoded as the base model decodes them."""
        rows = torch.tensor([bool(columns) for columns in self.trail.columns], device=self.logits.device)
        return rows.repeat_interleave(self.repeat)

    def with_last(self, edited: Tensor, rows: Tensor | None = None) -> Tensor:
        """The pass's logits with the last columns replaced by ``edited`` (B, n, V), in the given rows only."""
        logits = self.logits.float().clone()
        tail = logits[:, -edited.shape[1] :]
        tail.copy_(edited if rows is None else torch.where(rows[:, None, None], edited, tail))
        return logits


@dataclass(frozen=True, slots=True)
class UpcomingPass:
    """A forward pass that is about to run.

    Attributes:
        past: Columns that are in the cache.
        length: Columns of the pass.
        rows: Forward rows; several for a prompt row under beams.
        columns: Visual columns that each prompt row will then have.
        start: Column at which the prompt under way begins.
        end: Column after it.
        mask: Attention mask (B, n) of the columns up to the end of the pass, if there is one.
        inputs: What ``generate`` was called with, by name; the forward's own arguments outside ``generate``.
        trail: What is known of the sequence so far.
    """

    past: int
    length: int
    rows: int
    columns: list[list[int]]
    start: int = 0
    end: int = 0
    mask: Tensor | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    trail: Trail | None = None

    def new_columns(self) -> list[list[int]]:
        """For each prompt row, the visual columns of this pass, relative to its start."""
        last = self.past + self.length
        return [[column - self.past for column in row if self.past <= column < last] for row in self.columns]

    def is_whole(self) -> bool:
        """Whether it is a whole prompt or one more token, not a part of a prompt, a draft, or what was read before."""
        at_once = self.past <= self.start and self.past + self.length == self.end
        return at_once or self.length == 1


class Decoder:
    """Base of all decoders: an untouched ``generate``. Every hook does nothing until a method overrides it.

    Attributes:
        title: The name as papers write it.
        is_rival: Whether it is a method that ReWEIGH is compared with, not a plain baseline.
        needs_image: Whether the method is about images; without it a text-only model will do.
        needs_table: Whether it is made with a reference table (``table=``, ``layer=``, ``beta=``).
        generation: Keyword defaults that the method gives to ``generate``; what the caller passes wins.
        regime: The regime in which the method's authors decode, for comparisons.
        layers: Blocks whose output it reads; -1 is the input of the first block.
        reads_every_step: Whether it needs their output at every step, not only where an image may be new.
        attends: Whether attention goes through ``edit_attention`` and ``see_attention``.
        loop: A decoding loop for the ``custom_generate`` of transformers, if the method has its own.
        name: Registered name; set by ``reweigh.decoder``.
        options: What it was given beyond its defaults; set by ``reweigh.decoder``.
    """

    title: ClassVar[str] = ""
    is_rival: ClassVar[bool] = True
    needs_image: ClassVar[bool] = True
    needs_table: ClassVar[bool] = False
    generation: Mapping[str, Any] = {}
    regime: Mapping[str, Any] = GREEDY
    layers: frozenset[int] = frozenset()
    reads_every_step: ClassVar[bool] = True
    attends: bool = False
    loop: Callable[..., Any] | None = None
    name: str = ""
    options: Mapping[str, Any] = {}

    def __init__(self, anatomy: Anatomy, processor: Any = None) -> None:
        self.anatomy = anatomy
        self.processor = processor

    @cached_property
    def key(self) -> int:
        """Number under which caches remember what this decoder saw."""
        return next(_keys)

    def request(self, outer: Request | None = None, **options: Any) -> Request:
        """Settings of one caller; what is not given is taken from ``outer``, the request it is nested in."""
        if options:
            raise InputError(
                f"a request of {self.name or type(self).__name__} has no option {min(options)!r}",
                hint="give options when the decoder is made",
            )
        return Request(self)

    def attach(self, model: Any, processor: Any) -> Session:
        """Tie this decoder to a model."""
        from reweigh.engines.transformers.session import Session

        return Session(model, processor, self)

    def engage(self, tap: Tap) -> Callable[[], None]:
        """Prepare the model when the first request opens; return what undoes it."""
        return lambda: None

    def before(self, upcoming: UpcomingPass) -> None:
        """Learn of a forward pass that is about to run."""

    def edit_attention(self, layer: int, scores: Tensor) -> Tensor:
        """Change attention scores (B, H, T, S) after scaling and masking, before the softmax."""
        return scores

    def see_attention(self, layer: int, weights: Tensor) -> None:
        """Look at attention weights (B, H, T, S)."""

    def edit(self, forward: ForwardPass) -> Tensor | None:
        """Look at one forward pass; return logits (B, K, V) in place of the raw ones, or ``None``."""
        return None

    def decoding(self) -> dict[str, Any]:
        """The regime of a comparison: what the authors decode with, and what the method itself needs."""
        return {**self.regime, **self.generation}

    def record(self) -> dict[str, Any]:
        """What the record of a run keeps of the decoder."""
        options = {name: _named(value) for name, value in self.options.items()}
        return {"decoder": self.name, "generation": self.decoding(), "options": options}


def _named(value: Any) -> Any:
    """An option as a record can hold it: a function by its name, a file by its name and the hash of what it holds."""
    if isinstance(value, str | Path) and os.path.isfile(value):  # which no text is too long for
        return {"file": Path(value).name, "sha256": sha256_file(Path(value))}
    if not callable(value):
        return value
    kind = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(kind, '__module__', 'builtins')}.{kind.__qualname__}"  # methods of built-in types have none


def in_range(name: str, value: Any, low: float, high: float = float("inf")) -> float:
    """Check an option's range; the message names the option."""
    if isinstance(value, bool) or not isinstance(value, int | float):  # a user's option may be anything
        raise InputError(f"{name} is {value!r}, but must be a number from {low:g} to {high:g}")
    if not low <= value <= high:
        raise InputError(f"{name} is {value}, but must be from {low:g} to {high:g}")
    return value
