"""``reweigh doctor --table``: how many references are below b0, with a warning where they say little."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from reweigh.tables.table import ReferenceTable
from reweigh.world import table_path


def test_it_says_how_many_references_are_low(cli, tmp_path):
    table = ReferenceTable.from_pretrained(table_path())
    fine = cli("doctor", "world", "--table", table_path())
    low = float(np.mean([reference < table.b0 for reference in table.references]))
    assert f"348 of layer 2, {low:.0%} below b0" in fine.out
    assert "warning" not in fine.err
    weak = replace(table, references=np.minimum(table.references, table.b0 / 2), point=None)
    weak.save_pretrained(tmp_path)
    told = cli("doctor", "world", "--table", tmp_path)
    assert told.code == 0
    assert "warning: 100% of the registered tokens have a reference below b0" in told.err
    assert cli("doctor", "world", "--table", tmp_path, "--json").json["references"]["below_b0"] == 1.0
