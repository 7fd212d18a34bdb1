"""Groups of options that several commands share: declared once in a dataclass, expanded on the command line.

A command requests a group by the type of a parameter; typer sees the group's options instead.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Expand the parameters of ``command`` that are dataclasses of options; use it below ``@app.command()``."""
    hints = get_type_hints(command)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

    @wraps(command)
    def flat(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    options: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        if name in groups:
            options += _spelled_out(groups[name])
        else:
            options.append(parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))
    flat.__signature__ = Signature(options)  # type: ignore[attr-defined]
    flat.__annotations__ = {option.name: option.annotation for option in options}
    return flat


def _spelled_out(group: Any) -> list[Parameter]:
    """One parameter for each option; ``PANEL`` names their panel in the help."""
    hints, found = get_type_hints(group), []
    for field in fields(group):
        option: Any = copy(field.default)
        option.rich_help_panel = getattr(group, "PANEL", None)
        found.append(
            Parameter(field.name, Parameter.KEYWORD_ONLY, default=option, annotation=hints[field.name])
        )
    return found
