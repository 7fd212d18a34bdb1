"""An LLM judge behind one small protocol: any OpenAI-compatible endpoint, paced, retried and cached."""

from __future__ import annotations

from reweigh.benchmarks.judge.cache import CachedJudge
from reweigh.benchmarks.judge.endpoint import DEFAULT_MODEL, ChatEndpoint
from reweigh.benchmarks.judge.protocol import Judge, JudgeError, Message, Request, ask_all
from reweigh.benchmarks.judge.settings import JudgeSettings

__all__ = [
    "DEFAULT_MODEL",
    "CachedJudge",
    "ChatEndpoint",
    "Judge",
    "JudgeError",
    "JudgeSettings",
    "Message",
    "Request",
    "ask_all",
]
