"""An LLM judge behind one small protocol: chat or closed questions, paced, retried and cached."""

from __future__ import annotations

from reweigh.benchmarks.judge.cache import CachedJudge, CachedRater
from reweigh.benchmarks.judge.kinds import DEFAULT_MODEL, ChatEndpoint, JudgeSettings, SystemOne
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
