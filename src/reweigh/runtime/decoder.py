"""What an engine and a decoder share: the request of a caller, and the hooks of a decoder.

A caller opens a :class:`Request`. Each forward pass of the model in the caller's thread or task then reaches the request's
:class:`Decoder` as a :class:`~reweigh.runtime.forward.Pass`, and the decoder may return other logits. Knows no method and
no model library.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from reweigh.errors import InputError
from reweigh.files.artifacts import sha256_file
from reweigh.runtime.forward import Pass
from reweigh.runtime.sequence import Batch

if TYPE_CHECKING:
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


class Decoder:
    """Base of all decoders: an untouched ``generate``. Every hook does nothing until a method overrides it.

    Attributes:
        title: The name as papers write it.
        is_rival: Whether it is a method that ReWEIGH is compared with, not a plain baseline.
        needs_image: Whether the method is about images; without it a text-only model will do.
        needs_table: Whether it is made with a reference table (``table=``, ``layer=``, ``beta=``).
        generation: Keyword defaults that the method gives to ``generate``; what the caller passes wins.
        regime: The regime in which the method's authors decode, for comparisons.
        grid: Values of its own options that a tuned comparison tries, in all combinations, the default among them.
        layers: Blocks whose output it reads; -1 is the input of the first block.
        reads_every_step: Whether it needs their output at every step, not only where an image may be new.
        runs_passes: Whether ``edit`` runs forward passes of its own, which must not be shown to it.
        attends: Whether attention goes through ``edit_attention`` and ``see_attention``.
        loop: A decoding loop for the ``custom_generate`` of transformers, if the method has its own.
        session: Class of the session that ties it to a model, where it needs one of its own.
        name: Registered name; set by ``reweigh.decoder``.
        options: What it was given beyond its defaults; set by ``reweigh.decoder``.
        source: Name and hash of the plugin file that defines it, if one does.
    """

    title: ClassVar[str] = ""
    is_rival: ClassVar[bool] = True
    needs_image: ClassVar[bool] = True
    needs_table: ClassVar[bool] = False
    generation: Mapping[str, Any] = {}
    regime: Mapping[str, Any] = GREEDY
    grid: ClassVar[tuple[tuple[str, tuple[Any, ...]], ...]] = ()
    layers: frozenset[int] = frozenset()
    reads_every_step: ClassVar[bool] = True
    runs_passes: ClassVar[bool] = True
    attends: bool = False
    loop: Callable[..., Any] | None = None
    session: type | None = None
    name: str = ""
    options: Mapping[str, Any] = {}
    source: Mapping[str, str] | None = None

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

    def engage(self, hooks: Any) -> Callable[[], None]:
        """Prepare the model when the first request opens; return what undoes it."""
        return lambda: None

    def before(self, forward: Pass) -> None:
        """Learn of a forward pass that is about to run; its logits and states are not there yet."""

    def edit_attention(self, layer: int, scores: Tensor, forward: Pass | None) -> Tensor:
        """Change attention scores (B, H, T, S) after scaling and masking, before the softmax.

        ``forward`` is the main pass, also while the decoder runs passes of its own beside it.
        """
        return scores

    def see_attention(self, layer: int, weights: Tensor, values: Tensor, forward: Pass | None) -> None:
        """Look at attention weights (B, H, T, S) and the values (B, H, S, d) that they mix."""

    def edit(self, forward: Pass) -> Tensor | None:
        """Look at one forward pass; return logits (B, K, V) in place of the raw ones, or ``None``."""
        return None

    def generated(self, batch: Batch) -> None:
        """Learn that a generation ended, with what travelled on its cache."""

    def decoding(self) -> dict[str, Any]:
        """The regime of a comparison: what the authors decode with, and what the method itself needs."""
        return {**self.regime, **self.generation}

    def record(self) -> dict[str, Any]:
        """What the record of a run keeps of the decoder."""
        options = {name: _named(value) for name, value in self.options.items()}
        source = {} if self.source is None else {"plugin": dict(self.source)}
        return {"decoder": self.name, "generation": self.decoding(), "options": options} | source


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
