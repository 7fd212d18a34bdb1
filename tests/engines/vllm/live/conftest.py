"""Tests that run where vLLM is installed: scripts/test-vllm calls them, once for each of its model runners."""

from __future__ import annotations

import importlib.util
import os

import pytest

if importlib.util.find_spec("vllm") is None or "REWEIGH_VLLM_REFERENCE" not in os.environ:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def world():
    """The embedded checkpoint."""
    from harness import Reference

    return Reference("world")
