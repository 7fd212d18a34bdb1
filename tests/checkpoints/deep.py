"""Stand-ins for released checkpoints: as deep as they are, as small as the others, and soon done with a text."""

from __future__ import annotations

from pathlib import Path

from transformers import GenerationConfig

from checkpoints import families

ENDS = 12
"""Every so-many-th token ends a text, so that a random model ends one at all."""


def build_deep(family: str, blocks: int, folder: Path) -> Path:
    """Save a checkpoint of ``family`` with as many blocks as the released one has."""
    before = families.BLOCKS
    families.BLOCKS = blocks
    try:
        families.build(family, folder)
    finally:
        families.BLOCKS = before
    settings = GenerationConfig.from_pretrained(folder)
    settings.eos_token_id = list(range(0, families.VOCABULARY, ENDS))
    settings.save_pretrained(folder)
    return folder
