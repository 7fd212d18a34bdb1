"""Benchmarks for developers: rank kernels, the step's edit, growth, calibration, a large random model, server, vLLM.

    python -m tools.bench                       # rank kernels and the step's edit, for the shapes of five models
    python -m tools.bench kernels -s llava-1.5  # one shape

They run from a clone. What decoding costs on your own model is in the table of ``reweigh compare MODEL``.
"""
