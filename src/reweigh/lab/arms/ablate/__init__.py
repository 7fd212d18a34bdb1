"""Ablation: the method with one thing changed at a time, on the same records and the same evidence."""
