"""Write goldens: ``python tests/goldens/freeze.py core/decoders/vcd``, a prefix, or nothing for all."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
sys.path.insert(0, str(Path(__file__).parents[1]))


def main(prefixes: list[str]) -> None:
    from goldens.cases import CORE
    from goldens.values import write

    for name, compute in CORE.items():
        if any(name.startswith(prefix) for prefix in prefixes or [""]):
            began = time.process_time()
            file = write(name, compute())
            took = time.process_time() - began
            sys.stdout.write(f"{name}: {file.stat().st_size:,} bytes, {took:.1f} s of CPU\n")


if __name__ == "__main__":
    main(sys.argv[1:])
