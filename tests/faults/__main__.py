"""``python -m faults CASES [SEED]``: damage every kind of file that many times in all, and print the counts."""

from __future__ import annotations

import sys

from faults.engine import main

sys.exit(main(*map(int, sys.argv[1:] or ["1000"])))
