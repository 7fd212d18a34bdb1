"""Rehearse a prefill and a step of ReWEIGH on a device without hardware, and print how often each waited for it.

``fake`` is a Python-only backend: tensors say they are on it and hold their values on the CPU. Reading a value, or
copying one to the CPU, is a wait; an operation on tensors of two devices is an error, but for single numbers.
``meta`` has no values: any wait is an error.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from reweigh.engines.reader import Reader, Registered
from reweigh.engines.rows import Row
from reweigh.method.edit import StepEditor
from reweigh.method.lens import Lens

VOCABULARY, WIDTH, LENGTH = 9000, 16, 40
WAITS = ("aten._local_scalar_dense", "aten.equal", "aten.is_nonzero", "aten.nonzero")
waits = 0


class Fake(torch.Tensor):
    """A tensor on the fake device."""

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> Fake:
        made = torch.Tensor._make_wrapper_subclass(
            cls, values.shape, values.stride(), dtype=values.dtype, device=torch.device("fake")
        )
        made.values_on_cpu = values
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})


class FakeFactories(TorchDispatchMode):
    """Leads tensors that are made on the fake device, or copied to it, to ``Fake``."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})


class FakeTensors(TorchFunctionMode):
    """Leads ``torch.tensor``, which no dispatch mode sees, to ``Fake``."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.tensor and torch.device(kwargs.get("device") or "cpu").type == "fake":
            return Fake(func(*args, **{**kwargs, "device": "cpu"}))
        return func(*args, **kwargs)


def dispatch(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    global waits
    given = [one for one in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    own = any(isinstance(one, Fake) for one in given)
    name, target = str(func).rsplit(".", 1)[0], kwargs.get("device")
    to_cpu = own and target is not None and torch.device(target).type == "cpu"
    if own and (name in WAITS or to_cpu):
        waits += 1
    mixed = own and any(not isinstance(one, Fake) and one.ndim for one in given)
    if mixed and name not in ("aten._to_copy", "aten.copy_"):
        raise RuntimeError(f"{func}: tensors of two devices")
    if target is not None and torch.device(target).type == "fake":
        own, kwargs = True, {**kwargs, "device": "cpu"}
    plain = tree_map(lambda one: one.values_on_cpu if isinstance(one, Fake) else one, (args, kwargs))
    result = func(*plain[0], **plain[1])
    if not own or to_cpu:
        return result
    back = {id(one.values_on_cpu): one for one in given if isinstance(one, Fake)}  # written to in place
    return tree_map(
        lambda one: (
            (back[id(one)] if id(one) in back else Fake(one)) if isinstance(one, torch.Tensor) else one
        ),
        result,
    )


def on(device: str, tensor: torch.Tensor) -> torch.Tensor:
    return Fake(tensor) if device == "fake" else tensor.to(device)


def main(device: str) -> None:
    torch.manual_seed(0)
    tokens = torch.arange(0, VOCABULARY, 7)
    table = Registered(tokens, torch.rand(len(tokens)), 0.01)
    norm, head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
    for part in (norm, head):
        for name, weight in list(part._parameters.items()):
            if weight is not None:
                part._parameters[name] = nn.Parameter(on(device, weight.detach()), requires_grad=False)
    reader = Reader(Lens(norm, head, chunk=8), [0], tokens=tokens, registered=table)
    images = 2
    rows = [Row(positions=list(range(2, 26)), patches=[None] * 24, bounds=[24]) for _ in range(images)]
    with torch.inference_mode():
        for row in rows:
            reader.feed(row, 0, {0: on(device, torch.randn(LENGTH, WIDTH))})
        place = torch.device(device)
        found = torch.stack([reader.finish(row, place) for row in rows]) if device == "fake" else None
        prefill = waits
        strengths = on(device, torch.rand(images, VOCABULARY)) if found is None else found
        editor = StepEditor(strengths, torch.tensor([1.0] * images, device=place))
        before = waits
        for _ in range(3):
            editor.step(on(device, torch.randn(images, 1, VOCABULARY)).squeeze(1)).logits.unsqueeze(1)
        sys.stdout.write(f"step {waits - before} image {prefill // images}\n")


if __name__ == "__main__":
    if sys.argv[1] == "fake":
        _setup_privateuseone_for_python_backend("fake")
        with FakeTensors(), FakeFactories():
            main("fake")
    else:
        main(sys.argv[1])
