"""AMBER: descriptions against annotated objects (generative) and yes/no questions (discriminative)."""
