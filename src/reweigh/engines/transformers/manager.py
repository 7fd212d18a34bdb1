"""Which runs hold the hooks on a model, and what each decoder needs installed.

All sessions of a model share its hook manager. Hooks are there while a run is open anywhere; a pass of a thread or task
without a run passes through them unchanged. What the hooks do is in ``forward_hooks``; how they are put on modules and
taken off again is in ``Hooks``.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from reweigh.engines.base import Decoder, Pass, Watcher
from reweigh.engines.run import Run, opening
from reweigh.engines.transformers.attention import Attention
from reweigh.engines.transformers.forward_hooks import ForwardHooks
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import Anatomy

PACKED = ("generate_batch", "init_continuous_batching", "continuous_batching_context_manager")
"""Ways of generating that pack several sequences into one row."""

_lock = threading.RLock()
_managers: weakref.WeakValueDictionary[int, HookManager] = weakref.WeakValueDictionary()
"""The manager of each model, by address: hooks keep a manager alive while they are there, and it keeps the model."""


class HookManager:
    """Hooks on one model, shared by all runs that are open on it."""

    def __init__(self, anatomy: Anatomy) -> None:
        self.anatomy = anatomy
        self._forward = ForwardHooks(anatomy, self.holding)
        self._uses: dict[Decoder, int] = {}
        self._undo_decoder: dict[Decoder, Callable[[], None]] = {}
        self._hooks = Hooks()
        self._stays = False
        self._attention = Attention(anatomy, lambda: self.forward)

    @classmethod
    def of(cls, anatomy: Anatomy) -> HookManager:
        """Return the manager of a model."""
        with _lock:
            if (found := _managers.get(id(anatomy.model))) is None:
                found = _managers[id(anatomy.model)] = cls(anatomy)
            return found

    def __deepcopy__(self, memo: Any) -> HookManager:
        return self  # a copied model has the hooks, which do nothing there

    @contextmanager
    def passes(self, run: Run) -> Iterator[Run]:
        """Show every pass of this thread or task to a run's decoder."""
        with self.holding(run), opening(self.anatomy.model, run):
            yield run

    @contextmanager
    def holding(self, run: Run) -> Iterator[None]:
        """Keep a run and its hooks, whatever is left meanwhile."""
        self._hold(run)
        try:
            yield
        finally:
            self._release(run)

    @property
    def forward(self) -> Pass | None:
        """The pass that this thread is running; for a decoder with its own loop, the latest one."""
        return self._forward.forward

    def _hold(self, run: Run) -> None:
        """Install what a run needs unless it is there."""
        decoder = run.decoder
        with _lock:
            try:
                before = len(self._hooks)
                if not before:
                    self._install()
                self._read_layers(run.layers)
                if len(self._hooks) > before:
                    self._stays = forget_compiled(self.anatomy.model, wrapped=decoder.anatomy.compiled)
                if decoder not in self._uses:
                    self._undo_decoder[decoder] = self._engage(decoder)
                self._uses[decoder] = self._uses.get(decoder, 0) + 1
                run.uses += 1
            except BaseException:
                self._close_if_unused()
                raise

    def _release(self, run: Run) -> None:
        """Remove what no open run needs."""
        decoder = run.decoder
        with _lock:
            run.uses -= 1
            self._uses[decoder] -= 1
            if not self._uses[decoder]:
                del self._uses[decoder]
                self._undo_decoder.pop(decoder)()
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        """Take the hooks off, except off a compiled model: it would have to be compiled again for each run."""
        if self._uses or self._stays:
            return
        self._hooks.remove()
        self._forward.exits.clear()
        self._forward.forward = None  # a decoding loop's latest pass, which holds its cache

    def _engage(self, decoder: Decoder) -> Callable[[], None]:
        """Install what a decoder needs; return a function that undoes it."""
        with ExitStack() as undo:
            if decoder.attends:
                undo.callback(self._attention.hold())
            undo.callback(decoder.engage(self))
            return undo.pop_all().close

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


def watching(
    anatomy: Anatomy, layers: Iterable[int], see: Callable[[Pass], Any]
) -> AbstractContextManager[Any]:
    """Show every pass inside a block to ``see``, with the states after some blocks; see ``Watcher``."""
    return HookManager.of(anatomy).passes(Watcher(anatomy, layers, see).run())


def image_pass(passes: Sequence[Pass]) -> Pass:
    """Return the last of the passes seen, which must show an image."""
    if not passes or not passes[-1].has_image:
        raise InputError("the inputs contain no image", hint="build them with the processor and an image")
    return passes[-1]


def _refuse(name: str, *_args: Any, **_kwargs: Any) -> None:
    raise UnsupportedError(
        f"{name} packs several sequences into one row and bypasses the edit",
        hint="use generate, batched if you like",
    )


class Shadow:
    """Stands on an instance in the place of its method: calls ``function(original, ...)`` while ``active()``.

    A deep copy of the instance gets its own plain method back, so that a copied model is not tied to anything.
    """

    def __init__(
        self, owner: Any, name: str, function: Callable[..., Any], active: Callable[[], bool]
    ) -> None:
        self._owner = owner
        self._name = name
        self._original = _method(owner, name)
        self._function = function
        self._active = active
        functools.update_wrapper(self, self._original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._active():
            return self._function(self._original, *args, **kwargs)
        return self._original(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = memo.get(id(self._owner))
        return self if copied is None else getattr(type(copied), self._name).__get__(copied)


def _method(owner: Any, name: str) -> Any:
    """Return the method to call; not the one that transformers put there for a model folder with ``custom_generate``.

    That one opens a session of its own, so calling it from a session would never end.
    """
    found = vars(owner).get(name)
    if isinstance(found, functools.partial) and found.keywords.get("model") is owner:
        return getattr(type(owner), name).__get__(owner)
    return getattr(owner, name)


class Hooks:
    """The hooks on a model. A compiled forward breaks its graph at a hook instead of tracing it."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []

    def __len__(self) -> int:
        return len(self._undo)

    def before(self, module: nn.Module, hook: Callable[..., Any], *, prepend: bool = False) -> None:
        """Call ``hook`` ahead of a module."""
        quiet = torch.compiler.disable(hook)  # type: ignore[no-untyped-call]
        self._undo.append(module.register_forward_pre_hook(quiet, with_kwargs=True, prepend=prepend).remove)

    def after(self, module: nn.Module, hook: Callable[..., Any]) -> None:
        """Call ``hook`` with a module's output, which it may replace."""
        quiet = torch.compiler.disable(hook)  # type: ignore[no-untyped-call]
        self._undo.append(module.register_forward_hook(quiet).remove)

    def shadow(
        self, module: Any, name: str, function: Callable[..., Any], is_active: Callable[[], bool]
    ) -> None:
        """Put a function before a method; removal restores exactly what was there."""
        own = vars(module)
        before = own.get(name)
        own[name] = Shadow(module, name, function, is_active)
        self._undo.append(lambda: own.pop(name) if before is None else own.update({name: before}))

    def remove(self) -> None:
        """Take everything off, the last first."""
        while self._undo:
            self._undo.pop()()


def forget_compiled(model: nn.Module, *, wrapped: bool = False) -> bool:
    """Drop the graphs of this process if the model's wrapper or any part is compiled; return whether one was."""
    if not (wrapped or any(_is_compiled(module) for module in model.modules())):
        return False
    import torch._dynamo

    torch._dynamo.reset()
    return True


def _is_compiled(module: Any) -> bool:
    if getattr(module, "_compiled_call_impl", None) is not None:  # module.compile()
        return True
    own = vars(module)  # generate keeps its compiled call there; a user may have replaced forward
    return any(hasattr(own.get(name), "_torchdynamo_orig_callable") for name in ("_compiled_call", "forward"))
