"""The tap: which requests hold the hooks on a model, and what each decoder needs installed.

All sessions of a model share its tap. It is open while a request is open anywhere; a pass of a thread or task without
a request runs as if there were no tap. What the hooks do is `passes`.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from reweigh.engines.transformers.attention import Attention
from reweigh.engines.transformers.compiled import forget_compiled
from reweigh.engines.transformers.hooks import Hooks
from reweigh.engines.transformers.passes import Passes
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.runtime.context import Opened, enter, leave, opened_on, paused
from reweigh.runtime.decoder import Decoder, Request

PACKED = ("generate_batch", "init_continuous_batching", "continuous_batching_context_manager")
"""Ways of generating that pack several sequences into one row."""

_lock = threading.RLock()
_taps: weakref.WeakValueDictionary[int, Tap] = weakref.WeakValueDictionary()
"""The tap on each model, by the model's address: its hooks keep it alive, and it keeps the model."""


class Tap:
    """Hooks on one model, shared by all requests that are open on it."""

    def __init__(self, anatomy: Anatomy) -> None:
        self.anatomy = anatomy
        self._passes = Passes(anatomy, self.serving)
        self._uses: dict[Decoder, int] = {}
        self._undo_decoder: dict[Decoder, Callable[[], None]] = {}
        self._hooks = Hooks()
        self._stays = False
        self._attention = Attention(anatomy)

    @classmethod
    def of(cls, anatomy: Anatomy) -> Tap:
        """The open tap of a model, or a new one."""
        with _lock:
            return _taps.get(id(anatomy.model)) or cls(anatomy)

    def __deepcopy__(self, memo: Any) -> Tap:
        return self  # a copied model has the hooks, which do nothing there

    def open(self, request: Request) -> Opened:
        """Open a request in this thread or task."""
        outer = opened_on(self.anatomy.model)
        if outer is not None and not outer.paused and outer.request.decoder is not request.decoder:
            raise UnsupportedError(
                f"this {type(self.anatomy.model).__name__} already follows another decoder here",
                hint="leave the other `with` block first; two edits of one text would disturb each other",
            )
        self._hold(request)
        return enter(self.anatomy.model, request)

    def close(self, opened: Opened) -> None:
        """Close a request of this thread or task."""
        leave(opened)
        self._release(opened.request)

    @contextmanager
    def serving(self, request: Request) -> Iterator[Request]:
        """Keep a request open in this thread or task."""
        opened = self.open(request)
        try:
            yield request
        finally:
            self.close(opened)

    def paused(self) -> AbstractContextManager[None]:
        """Run further forward passes (a branch, the lens) without the decoder."""
        return paused(self.anatomy.model)

    def aside(self) -> AbstractContextManager[None]:
        """Run whole generations or measurements amid a pass; they have nothing to do with the one under way."""
        return self._passes.aside()

    def _hold(self, request: Request) -> None:
        """Install what a request needs unless it is there."""
        decoder = request.decoder
        with _lock:
            other = _taps.get(id(self.anatomy.model))
            if other is not None and other is not self:  # two threads opened the first request at once
                other._hold(request)
                return
            try:
                before = len(self._hooks)
                if other is None:
                    self._install()
                    _taps[id(self.anatomy.model)] = self
                self._read_layers(request.layers)
                if len(self._hooks) > before:
                    self._stays = forget_compiled(self.anatomy.model, wrapped=self.anatomy.compiled)
                if decoder not in self._uses:
                    self._undo_decoder[decoder] = self._engage(decoder)
                self._uses[decoder] = self._uses.get(decoder, 0) + 1
            except BaseException:
                self._close_if_unused()
                raise

    def _release(self, request: Request) -> None:
        """Remove what no request needs any longer."""
        decoder = request.decoder
        with _lock:
            other = _taps.get(id(self.anatomy.model))
            if other is not None and other is not self:
                other._release(request)
                return
            self._uses[decoder] -= 1
            if not self._uses[decoder]:
                del self._uses[decoder]
                self._undo_decoder.pop(decoder)()
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        """Take the hooks off, except off a compiled model: it would have to be compiled again for each request."""
        if self._uses or self._stays:
            return
        self._hooks.remove()
        self._passes.exits.clear()
        if _taps.get(id(self.anatomy.model)) is self:
            del _taps[id(self.anatomy.model)]

    def _engage(self, decoder: Decoder) -> Callable[[], None]:
        release = self._attention.hold() if decoder.attends else None
        try:
            undo = decoder.engage(self)
        except BaseException:
            if release is not None:
                release()
            raise

        def both() -> None:
            undo()
            if release is not None:
                release()

        return both

    def _install(self) -> None:
        model, speaker = self.anatomy.model, self.anatomy.speaker
        self._hooks.before(speaker, self._passes.before, prepend=True)
        self._hooks.after(speaker, self._passes.after)
        if speaker is not model:
            self._hooks.before(model, self._passes.outer)
            self._hooks.after(model, self._passes.outer_done)
        if hasattr(model, "generate"):
            self._hooks.shadow(model, "generate", self._passes.generate, self._passes.is_active)
        for module in {id(part): part for part in (model, speaker)}.values():
            for name in PACKED:
                if hasattr(module, name):
                    self._hooks.shadow(module, name, functools.partial(_refuse, name), self._passes.is_active)

    def _read_layers(self, layers: frozenset[int]) -> None:
        new = {layer: self.anatomy.exit_of(layer) for layer in sorted(layers - self._passes.exits.keys())}
        for layer, module in new.items():
            self._hooks.before(module, functools.partial(self._passes.capture, layer))
        self._passes.exits |= new


def _refuse(name: str, *_args: Any, **_kwargs: Any) -> None:
    raise UnsupportedError(
        f"{name} packs several sequences into one row and bypasses the edit",
        hint="use generate, batched if you like",
    )
