"""The entry point: look at each engine's configuration, in the process that makes it.

Without a ``reweigh`` section, nothing else is imported and nothing of vLLM is changed, in any version. With one,
``frontend`` makes the configuration name reweigh's worker and scheduler, so other processes need no plugin.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

GROUP = "vllm.general_plugins"
KEY = "reweigh"
TESTED = ("0.32", "0.33")
"""The series of vLLM that this release was made for; docs/vllm.md says how each was tested."""
FOLLOWED = "_reweigh_follows"
"""Marks wrapped methods."""

logger = logging.getLogger("vllm.reweigh")
"""Below vLLM's logger, whose handlers show it; a name of our own would have none."""


def register() -> None:
    """Wrap the method that makes engine configurations, once; vLLM calls this in each of its processes.

    It never raises, because vLLM calls it for everybody who has the package installed.
    """
    try:
        from vllm.engine.arg_utils import EngineArgs

        make = EngineArgs.create_engine_config
    except (ImportError, AttributeError) as error:
        logger.warning("reweigh does not know this vLLM (%s) and leaves it alone: %s", version(), error)
        return
    if not getattr(make, FOLLOWED, False):
        after(EngineArgs, "create_engine_config", lambda args, config: look(config))


def after(owner: Any, name: str, then: Callable[[Any, Any], Any]) -> None:
    """Call ``then(self, result)`` after each call of a method."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def followed(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        then(self, result)
        return result

    setattr(followed, FOLLOWED, True)
    setattr(owner, name, followed)


def look(config: Any) -> None:
    """Set reweigh up in an engine whose configuration asks for it."""
    sections = getattr(config, "additional_config", None)
    if not isinstance(sections, Mapping) or not sections:
        return
    if KEY not in sections:
        from reweigh_vllm.settings import check_misspelled

        check_misspelled(sections)
        return
    require_tested()
    from reweigh_vllm.frontend import configure

    configure(config)


def version() -> str:
    """Return the version of vLLM, also of a build that was published under another name."""
    import vllm

    return str(getattr(vllm, "__version__", "unknown"))


def require_tested() -> None:
    """Refuse a vLLM of another series."""
    from reweigh.errors import UnsupportedError

    found = version()
    if not f"{found}.".startswith(tuple(f"{series}." for series in TESTED)):
        raise UnsupportedError(
            f"reweigh-vllm was made for vLLM {' and '.join(TESTED)}, and this is vLLM {found}",
            hint="install the release of reweigh-vllm for this vLLM, or leave reweigh out of additional_config",
        )


def require_plugin() -> None:
    """Refuse to start if vLLM does not load this plugin, so that nothing would be edited or observed."""
    from vllm import envs

    from reweigh.errors import UnsupportedError

    installed = any(entry.name == KEY for entry in entry_points(group=GROUP))
    if installed and (envs.VLLM_PLUGINS is None or KEY in envs.VLLM_PLUGINS):
        return
    if installed:
        raise UnsupportedError(
            "vLLM does not load reweigh's plugin here: VLLM_PLUGINS leaves it out",
            hint="name reweigh in VLLM_PLUGINS, or unset it",
        )
    raise UnsupportedError(
        f"vLLM does not load reweigh's plugin here: no installed package has the entry point {KEY!r} of {GROUP}",
        hint="pip install reweigh-vllm in vLLM's environment (pip install -e vllm for a checkout); "
        "a folder on PYTHONPATH brings no entry point",
    )
