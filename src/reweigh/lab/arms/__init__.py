"""Experiments: comparison, tuning and ablation of decoders, as functions for notebooks."""
