"""Object hallucination on one's own pictures."""
