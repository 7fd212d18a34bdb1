"""An engine of vLLM beside an installed reweigh that nobody configured; prints what of vLLM reweigh has changed."""

from __future__ import annotations

import inspect
import json
import sys
from types import FunctionType
from typing import Any

from harness import Engine, Reference, told
from vllm import LLM


def is_ours(value: Any) -> bool:
    while isinstance(value, staticmethod | classmethod | FunctionType):
        if isinstance(value, FunctionType) and "reweigh_vllm/" in value.__code__.co_filename:
            return True
        value = getattr(value, "__wrapped__", None) or getattr(value, "__func__", None)
    return False


def wrapped() -> list[str]:
    """Functions and methods in vLLM's modules whose code is reweigh's."""
    found = set()
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] != "vllm" or module is None:
            continue
        for key, value in list(vars(module).items()):
            if is_ours(value):
                found.add(f"{name}.{key}")
            if inspect.isclass(value) and value.__module__.startswith("vllm"):
                inner = [one for one, its in vars(value).items() if is_ours(its)]
                found.update(f"{value.__module__}.{value.__name__}.{one}" for one in inner)
    return sorted(found)


def main() -> None:
    given = {**json.loads(sys.argv[1]), "additional_config": {}}
    llm = LLM(**given)
    imported = sorted(name for name in sys.modules if name.split(".")[0] in ("reweigh", "reweigh_vllm"))
    answer = Engine(Reference("world"), llm).answer_with(None)
    report = {
        "wrapped": wrapped(),
        "imported": imported,
        "tokens": list(answer.outputs[0].token_ids),
        "told": told(answer),
    }
    sys.stdout.write(f"\n{json.dumps(report)}\n")


if __name__ == "__main__":
    main()
