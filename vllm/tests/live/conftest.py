"""Tests that start engines of vLLM: scripts/test-vllm calls them, once for each of its model runners."""

from __future__ import annotations

import os

import pytest

if "REWEIGH_VLLM_REFERENCE" not in os.environ:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def world():
    """The embedded checkpoint."""
    from harness import Reference

    return Reference("world")
