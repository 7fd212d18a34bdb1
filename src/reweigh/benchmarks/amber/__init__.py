"""AMBER: descriptions against annotated objects (generative) and yes/no questions (discriminative).

``data`` reads the benchmark's files, ``similarity`` decides which words are near, ``generative`` and
``discriminative`` score, ``score`` combines both into the AMBER score.
"""
