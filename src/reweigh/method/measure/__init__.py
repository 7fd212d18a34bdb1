"""Measure: read image positions through norm and head, rank the vocabulary at each, average reciprocal ranks."""
