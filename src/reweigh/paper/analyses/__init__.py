"""The formulas of the paper's analyses of single decoding steps, on plain arrays: no model, no files."""
