"""The method, pure: measure, register, intervene. Torch and NumPy only; no model library, no hooks, no engine."""
