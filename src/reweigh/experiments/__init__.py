"""Studies: comparison, tuning and ablation of decoders, as functions a notebook can call."""
