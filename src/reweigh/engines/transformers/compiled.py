"""Models that were compiled, and perhaps run, before hooks were put on them.

A graph that was traced without our hooks would go on without them. Forgetting the graphs makes the next call trace
again, with a break at each hook.
"""

from __future__ import annotations

from typing import Any

from torch import nn


def is_compiled(model: nn.Module) -> bool:
    """Whether any part of a model is compiled."""
    return any(_is_compiled(module) for module in model.modules())


def forget_graphs() -> None:
    """Drop the graphs of this process; the next call compiles again."""
    import torch._dynamo

    torch._dynamo.reset()


def _is_compiled(module: Any) -> bool:
    if getattr(module, "_compiled_call_impl", None) is not None:  # module.compile()
        return True
    own = vars(module)  # generate keeps its compiled call there; a user may have replaced forward
    return any(hasattr(own.get(name), "_torchdynamo_orig_callable") for name in ("_compiled_call", "forward"))
