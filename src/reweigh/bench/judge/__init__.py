"""An LLM judge behind one small protocol: any OpenAI-compatible endpoint, paced, retried and cached."""

from __future__ import annotations

from reweigh.bench.judge.cache import CachedJudge
from reweigh.bench.judge.endpoint import DEFAULT_MODEL, ChatEndpoint
from reweigh.bench.judge.protocol import Judge, JudgeError, Message, Request, ask_all

__all__ = [
    "DEFAULT_MODEL",
    "CachedJudge",
    "ChatEndpoint",
    "Judge",
    "JudgeError",
    "Message",
    "Request",
    "ask_all",
]
