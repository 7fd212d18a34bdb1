"""Intervene: candidates whose evidence falls below their own reference lose at most beta of logit."""
