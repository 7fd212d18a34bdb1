"""Logs of the plugin reach pytest, whatever vLLM has made of its loggers in this process."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def _heard(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("vllm", "vllm.reweigh"):
        logger = logging.getLogger(name)
        monkeypatch.setattr(logger, "propagate", True)
        monkeypatch.setattr(logger, "disabled", False)
    monkeypatch.setattr(logging.getLogger("vllm.reweigh"), "level", logging.WARNING)
