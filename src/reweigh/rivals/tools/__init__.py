"""What several rivals need: second branches, edits of the stream, shared formulas."""
