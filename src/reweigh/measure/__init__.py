"""Measure: dense ordinal visual evidence, read from the image positions of a prompt."""
