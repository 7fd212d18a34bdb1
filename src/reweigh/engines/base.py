"""What an engine and a decoder share: passes, rows, prompts, answers, and the methods of a decoder."""

from __future__ import annotations

from reweigh.runtime.answer import Answer
from reweigh.runtime.decoder import GREEDY, SAMPLING, Decoder, Pass, in_range
from reweigh.runtime.sequence import Sequence as Row

__all__ = ["GREEDY", "SAMPLING", "Answer", "Decoder", "Pass", "Row", "in_range"]
