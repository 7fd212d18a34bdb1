"""An LLM judge behind one small protocol: chat or closed questions, paced, retried and cached."""

from __future__ import annotations

from reweigh.benchmarks.judge.cache import CachedJudge, CachedRater
from reweigh.benchmarks.judge.chat import DEFAULT_MODEL, ChatEndpoint
from reweigh.benchmarks.judge.protocol import (
    Distribution,
    Judge,
    JudgeError,
    Message,
    Rater,
    Request,
    ScaleQuestion,
    ask_all,
)
from reweigh.benchmarks.judge.settings import JudgeSettings
from reweigh.benchmarks.judge.systemone import SystemOne

__all__ = [
    "DEFAULT_MODEL",
    "CachedJudge",
    "CachedRater",
    "ChatEndpoint",
    "Distribution",
    "Judge",
    "JudgeError",
    "JudgeSettings",
    "Message",
    "Rater",
    "Request",
    "ScaleQuestion",
    "SystemOne",
    "ask_all",
]
