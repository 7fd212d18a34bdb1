"""The transformers engine: hooks on a loaded model, so that the user's own ``generate`` follows a decoder."""
