"""What engines and decoders share: a prompt, a forward pass, and the methods of a decoder.

While a :class:`Run` is open, each forward pass of the model in its thread or task reaches the run's :class:`Decoder` as a
:class:`Pass`, and the decoder may return other logits. Knows no method and no model library.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from torch import Tensor

from reweigh.engines.rows import Batch, Row
from reweigh.engines.run import Run
from reweigh.errors import InputError, UnsupportedError
from reweigh.files.artifacts import sha256_file
from reweigh.method.grids import VisualPosition

if TYPE_CHECKING:
    from reweigh.engines.answer import Answer
    from reweigh.families.anatomy import Anatomy
    from reweigh.tables.key import ModelKey
    from reweigh.text import Template

_keys, _numbers = count(1), count(1)

GREEDY: Mapping[str, Any] = {"do_sample": False, "num_beams": 1}
SAMPLING: Mapping[str, Any] = {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0}
"""Plain sampling; ``top_k=0`` because transformers would otherwise keep 50 tokens."""

PENDING = torch.empty(0)
"""Placeholder for logits until the model returns."""


@dataclass(eq=False, kw_only=True)
class Prompt:
    """What passes belong to: the prompt of a running ``generate``; outside of it each pass is a prompt by itself.

    Attributes:
        run: The run it belongs to.
        inputs: What ``generate`` was called with, by name; the forward's own arguments outside ``generate``.
        start: Column at which it begins, after a kept cache.
        end: Column after it; what follows was generated.
        visual: Visual columns of each row of ``inputs``, counted from its start.
        generates: Whether it belongs to a ``generate``.
        rows: The rows of ``inputs``.
        batch: What travels with its cache.
        seen: Columns that were shown before the latest pass; more than its ``past`` where there is no cache.
        passes: Forward passes made so far.
        scratch: What the decoder keeps for itself while a pass lasts.
        number: Never reused, unlike ``id()``.
    """

    run: Run
    inputs: Mapping[str, Any]
    start: int
    end: int
    visual: list[list[VisualPosition]] = field(default_factory=list)
    generates: bool = False
    rows: list[Row] = field(default_factory=list)
    batch: Any = None  # a Batch, once its first pass begins
    seen: int = 0
    passes: int = 0
    scratch: Any = None
    number: int = field(default_factory=lambda: next(_numbers))


@dataclass(slots=True, eq=False, kw_only=True)
class Pass:
    """One forward pass, as a decoder sees it: built before the model runs, completed after it.

    Attributes:
        prompt: What it belongs to.
        rows: The row of each forward row; beams of one prompt row share one.
        past: Columns that were in the cache before this pass.
        length: Columns of this pass.
        states: Residual stream (B, T, d) after each block that the decoder reads.
        logits: Raw logits (B, K, V) of the last K columns; there once the model has run.
        arguments: The forward's arguments by name.
    """

    prompt: Prompt
    rows: list[Row]
    past: int
    length: int
    states: dict[int, Tensor] = field(default_factory=dict)
    logits: Tensor = PENDING
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        """Whether the model has not returned yet."""
        return self.logits is PENDING

    @property
    def has_image(self) -> bool:
        """Whether any row has an image."""
        return any(row.positions for row in self.rows)

    def rows_of(self, count: int) -> list[Row]:
        """Return the pass's own rows if they are ``count``, else those of a branch that reads each prompt once."""
        return self.rows if count == len(self.rows) else self.prompt.rows

    def new(self) -> list[tuple[int, Row, list[int]]]:
        """Return (forward row, row, its columns in this pass) of each row with new visual columns."""
        first, last = max(self.prompt.seen, self.past), self.past + self.length
        found, done = [], set()
        for index, row in enumerate(self.rows):
            if row.number in done or not row.positions or row.positions[-1] < first:
                continue
            done.add(row.number)
            columns = [first - self.past + column for column in row.between(first, last)]
            if columns:
                found.append((index, row, columns))
        return found

    def check_states(self) -> None:
        """Refuse states that do not cover the pass while it shows images: their columns would be read elsewhere."""
        wanted = (len(self.rows), self.length)
        for layer, state in self.states.items():
            if tuple(state.shape[:2]) != wanted and self.new():
                raise UnsupportedError(
                    f"the stream after block {layer} has (rows, columns) {tuple(state.shape[:2])} in a pass of {wanted}, "
                    "so the image's positions cannot be read there",
                    hint="this model computes late blocks for some columns only; choose an earlier block (layer=...)",
                )

    def keep(self, row: Row, columns: list[int], reading: Any) -> None:
        """Keep with a row what was read of its visual positions up to the last of some columns of this pass."""
        row.mark(bisect_right(row.positions, self.past + columns[-1]), reading)

    def shown(self, index: int) -> list[int]:
        """Return the visual columns of a forward row in this pass, relative to its start, new or not."""
        return self.rows[index].between(self.past, self.past + self.length)

    def start_of(self, index: int) -> int:
        """Return the index into the K logits of a row's first column at or after its last visual one; K if it has none."""
        positions, count = self.rows[index].positions, self.logits.shape[1]
        return max(0, positions[-1] - (self.past + self.length - count)) if positions else count

    def edited_columns(self) -> int:
        """Return how many last columns a decoder edits: one where the prompt ends, all K of a later pass."""
        return 1 if self.past + self.length <= self.prompt.end else int(self.logits.shape[1])

    def is_whole(self) -> bool:
        """Whether it is a whole prompt or one more token, not a part of a prompt, a draft, or a repetition."""
        at_once = self.past <= self.prompt.start and self.past + self.length == self.prompt.end
        return at_once or self.length == 1

    def image_rows(self) -> Tensor:
        """Return which forward rows have an image, bool (B,); the others are left to the base model."""
        return torch.tensor([bool(row.positions) for row in self.rows], device=self.logits.device)

    def with_last(self, edited: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the pass's logits with the last columns replaced by ``edited`` (B, n, V), in the given rows only."""
        logits = self.logits.float().clone()
        tail = logits[:, -edited.shape[1] :]
        tail.copy_(edited if rows is None else torch.where(rows[:, None, None], edited, tail))
        return logits


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
        call_options: Names of the options that a single call may set.
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
    call_options: ClassVar[tuple[str, ...]] = ()
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
        """Identifies this decoder on the caches that it filled."""
        return next(_keys)

    @cached_property
    def verified(self) -> set[Any]:
        """Shapes in which ``edit`` returned usable logits; an engine checks each once."""
        return set()

    def run(self, **options: Any) -> Run:
        """Return the settings of one call, checked."""
        if unknown := set(options) - set(self.call_options):
            raise InputError(
                f"a call of {self.name or type(self).__name__} has no option {min(unknown)!r}",
                hint="set it when the decoder is made",
            )
        options = {name: value for name, value in options.items() if value is not None}
        return Run(decoder=self, layers=self.layers, options=options)

    def engage(self, hooks: Any) -> Callable[[], None]:
        """Prepare the model when the first run opens; return a function that undoes it."""
        return lambda: None

    def before(self, forward: Pass) -> None:
        """Called before a forward pass runs, when it has no logits and states yet."""

    def edit_attention(self, layer: int, scores: Tensor, forward: Pass | None) -> Tensor:
        """Change attention scores (B, H, T, S) after scaling and masking, before the softmax.

        ``forward`` is the main pass, also while the decoder runs passes of its own beside it.
        """
        return scores

    def see_attention(self, layer: int, weights: Tensor, values: Tensor, forward: Pass | None) -> None:
        """Called with attention weights (B, H, T, S) and the values (B, H, S, d) that they mix."""

    def edit(self, forward: Pass) -> Tensor | None:
        """Return logits (B, K, V) to use instead of a pass's raw ones, or ``None``."""
        return None

    def generated(self, batch: Batch) -> None:
        """Called when a generation has ended, with the batch of its cache."""

    def decoding(self) -> dict[str, Any]:
        """Return the options of a comparison: the authors' regime, and what the method itself needs."""
        return {**self.regime, **self.generation}

    def record(self) -> dict[str, Any]:
        """Return what a run records about the decoder."""
        options = {name: _named(value) for name, value in self.options.items()}
        source = {} if self.source is None else {"plugin": dict(self.source)}
        return {"decoder": self.name, "generation": self.decoding(), "options": options} | source


class Watcher(Decoder):
    """Shows every pass to a function, with the states after some blocks where an image may be new; edits nothing."""

    reads_every_step = False

    def __init__(self, anatomy: Anatomy, layers: Iterable[int], see: Callable[[Pass], Any]) -> None:
        super().__init__(anatomy)
        self.layers = frozenset(layers)
        self.see = see

    def edit(self, forward: Pass) -> None:
        """Show the pass."""
        self.see(forward)


class Engine(Protocol):
    """A loaded model and the library that runs it: all that sessions, calibration and commands need of either.

    Attributes:
        anatomy: The model's parts.
        processor: Its processor, ``None`` if there is none.
    """

    @property
    def anatomy(self) -> Anatomy: ...

    @property
    def processor(self) -> Any: ...

    def key(self) -> ModelKey:
        """Identify the loaded model."""

    def inputs(
        self, pictures: Sequence[Any], prompts: Sequence[str], *, template: Template | None = None
    ) -> dict[str, Any]:
        """Build the model's inputs, one row for each picture (or ``None``) and prompt."""

    def passes(self, run: Run) -> AbstractContextManager[Run]:
        """Show every pass of this thread or task inside the block to the run's decoder."""

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Call the library's own ``generate``."""

    def answers(self, inputs: Mapping[str, Any], *, seed: int | None = None, **options: Any) -> list[Answer]:
        """Generate an answer to each row of ``inputs``; options as transformers' ``generate`` takes them."""


def _named(value: Any) -> Any:
    """Return an option for a record: a function by name, a file by name and hash."""
    if isinstance(value, str | Path) and os.path.isfile(value):  # Path.is_file raises on a very long string
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
