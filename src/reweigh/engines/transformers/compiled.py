"""Models that were compiled, and perhaps run, before hooks were put on them.

A graph that was traced without our hooks would keep running without them. Forgetting the graphs makes the next call trace
again, with a break at each hook.
"""

from __future__ import annotations

from typing import Any

from torch import nn


def forget_compiled(model: nn.Module, *, wrapped: bool = False) -> bool:
    """Drop the graphs of this process if the model's wrapper or any part is compiled; tell whether that was so."""
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
