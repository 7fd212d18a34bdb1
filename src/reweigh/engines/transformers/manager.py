"""Which requests hold the hooks on a model, and what each decoder needs installed.

All sessions of a model share its hook manager. Hooks are there while a request is open anywhere; a pass of a thread or
task without a request runs as if there were none. What the hooks do is in ``forward_hooks``.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from reweigh.engines.transformers.arguments import Prompt
from reweigh.engines.transformers.attention import Attention
from reweigh.engines.transformers.forward_hooks import ForwardHooks
from reweigh.engines.transformers.hooks import Hooks, forget_compiled
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.runtime.context import OpenRequest, enter, leave, opened_on
from reweigh.runtime.decoder import Decoder, Request
from reweigh.runtime.forward import Pass

PACKED = ("generate_batch", "init_continuous_batching", "continuous_batching_context_manager")
"""Ways of generating that pack several sequences into one row."""

_lock = threading.RLock()
_managers: weakref.WeakValueDictionary[int, HookManager] = weakref.WeakValueDictionary()
"""The manager of each model, by the model's address: its hooks keep it alive, and it keeps the model."""


class HookManager:
    """Hooks on one model, shared by all requests that are open on it."""

    def __init__(self, anatomy: Anatomy) -> None:
        self.anatomy = anatomy
        self._forward = ForwardHooks(anatomy, self.serving)
        self._uses: dict[Decoder, int] = {}
        self._undo_decoder: dict[Decoder, Callable[[], None]] = {}
        self._hooks = Hooks()
        self._stays = False
        self._attention = Attention(anatomy, lambda: self.forward)

    @classmethod
    def of(cls, anatomy: Anatomy) -> HookManager:
        """The manager of a model that has hooks, or a new one."""
        with _lock:
            return _managers.get(id(anatomy.model)) or cls(anatomy)

    def __deepcopy__(self, memo: Any) -> HookManager:
        return self  # a copied model has the hooks, which do nothing there

    def open(self, request: Request) -> OpenRequest:
        """Open a request in this thread or task."""
        outer = opened_on(self.anatomy.model)
        if outer is not None and not outer.suspended and outer.request.decoder is not request.decoder:
            raise UnsupportedError(
                f"this {type(self.anatomy.model).__name__} already follows another decoder here",
                hint="leave the other `with` block first; two edits of one text would disturb each other",
            )
        self._hold(request)
        return enter(self.anatomy.model, request)

    def close(self, opened: OpenRequest) -> None:
        """Close a request of this thread or task."""
        leave(opened)
        self._release(opened.request)

    @contextmanager
    def serving(self, request: Request) -> Iterator[OpenRequest]:
        """Keep a request open in this thread or task."""
        opened, around = self.open(request), self._forward.forward
        try:
            yield opened
        finally:
            self._forward.forward = around
            self.close(opened)

    def run(self, request: Request, prompt: Prompt | None, loop: Callable[[], Any]) -> Any:
        """Run a decoding loop as a request's; see ``ForwardHooks.run``."""
        return self._forward.run(request, prompt, loop)

    @property
    def forward(self) -> Pass | None:
        """The pass that this thread is running; for a decoder with its own loop, the latest one."""
        return self._forward.forward

    def _hold(self, request: Request) -> None:
        """Install what a request needs unless it is there."""
        decoder = request.decoder
        with _lock:
            other = _managers.get(id(self.anatomy.model))
            if other is not None and other is not self:  # two threads opened the first request at once
                other._hold(request)
                return
            try:
                before = len(self._hooks)
                if other is None:
                    self._install()
                    _managers[id(self.anatomy.model)] = self
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
        """Remove what no open request needs."""
        decoder = request.decoder
        with _lock:
            other = _managers.get(id(self.anatomy.model))
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
        self._forward.exits.clear()
        if _managers.get(id(self.anatomy.model)) is self:
            del _managers[id(self.anatomy.model)]

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
        model, language_model = self.anatomy.model, self.anatomy.language_model
        self._hooks.before(language_model, self._forward.before, prepend=True)
        self._hooks.after(language_model, self._forward.after)
        if language_model is not model:
            self._hooks.before(model, self._forward.outer)
            self._hooks.after(model, self._forward.outer_done)
        if hasattr(model, "generate"):
            self._hooks.shadow(model, "generate", self._forward.generate, self._forward.is_active)
        for module in {id(part): part for part in (model, language_model)}.values():
            for name in PACKED:
                if hasattr(module, name):
                    self._hooks.shadow(
                        module, name, functools.partial(_refuse, name), self._forward.is_active
                    )

    def _read_layers(self, layers: frozenset[int]) -> None:
        new = {layer: self.anatomy.exit_of(layer) for layer in sorted(layers - self._forward.exits.keys())}
        for layer, module in new.items():
            self._hooks.before(module, functools.partial(self._forward.capture, layer))
        self._forward.exits |= new


def _refuse(name: str, *_args: Any, **_kwargs: Any) -> None:
    raise UnsupportedError(
        f"{name} packs several sequences into one row and bypasses the edit",
        hint="use generate, batched if you like",
    )
