"""Tuning: which layer and beta a model should be used with, by a stated rule on records kept for choices."""
