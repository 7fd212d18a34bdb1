"""OPERA (Huang et al., CVPR 2024): beam search with an over-trust penalty and roll-back.

``decoder`` attaches it to a model, ``loop`` feeds the model, ``search`` decides what to feed and keeps what has ended.
"""
