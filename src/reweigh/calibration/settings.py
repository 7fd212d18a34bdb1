"""The settings of a calibration, the same for transformers, vLLM and Ray."""

from __future__ import annotations

from dataclasses import dataclass

from reweigh.errors import InputError, require_known
from reweigh.families.prompts import DESCRIBE
from reweigh.method.lens import CHUNK, DTYPES
from reweigh.method.readouts import DMRR, READOUTS
from reweigh.method.references import rule_named
from reweigh.shards import Shard

VLLM_BATCH = 32
"""Images of one part inside vLLM: enough to keep its batch full, few enough to lose when a run is stopped."""


@dataclass(frozen=True, kw_only=True)
class CalibrationSettings:
    """What a calibration reads, how it decodes, and what it registers; impossible values are refused.

    Attributes:
        layers: Blocks to read, all in one run; -1 is the last. ``None`` for the paper's layer for this model, else the last.
        prompt: What the model is asked about every image.
        template: Prompt template with {prompt}, for processors without a chat template.
        max_new_tokens: Longest description.
        batch_size: Images decoded together; part of the record, since padding can change rounding.
        dtype: "native" ranks the head's own logits, "float32" upcasts them first.
        chunk: Positions per matrix product.
        kernel: Ranking kernel.
        readout: How logits become evidence: the method's "dmrr", or another one for comparison.
        rule: Which tokens are registered: "stable" (the paper's), or "count-N".
        shard: Part of the images, as i/n.
    """

    layers: tuple[int, ...] | None = None
    prompt: str = DESCRIBE
    template: str | None = None
    max_new_tokens: int = 512
    batch_size: int = 1
    dtype: str = "native"
    chunk: int = CHUNK
    kernel: str = "auto"
    readout: str = DMRR
    rule: str = "stable"
    shard: str = "1/1"

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.max_new_tokens < 1:
            raise InputError(
                f"batch_size {self.batch_size} and max_new_tokens {self.max_new_tokens} must be at least 1"
            )
        if self.layers is not None:
            object.__setattr__(self, "layers", tuple(self.layers))
            if not self.layers:
                raise InputError("no layer was given", hint="layers=[-1] reads the last block")
        require_known("lens type", [self.dtype], DTYPES)
        require_known("readout", [self.readout], READOUTS)
        rule_named(self.rule)
        Shard.parse(self.shard)
