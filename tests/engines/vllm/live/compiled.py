"""Start an engine whose compile cache cannot tell configurations apart, as if vLLM hashed too little of them."""

from __future__ import annotations

import json
import sys

from vllm import LLM
from vllm.config import VllmConfig

if __name__ == "__main__":
    VllmConfig.compute_hash = lambda config: "0123456789"
    LLM(**json.loads(sys.argv[1]))
