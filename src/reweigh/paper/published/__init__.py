"""The published numbers, and what was measured here beside them: one page per table and figure of the paper."""
