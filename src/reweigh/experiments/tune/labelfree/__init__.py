"""Tuning without labels (experimental): a verifier's yes or no stands for the annotation of each mentioned object."""
