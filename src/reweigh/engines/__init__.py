"""Engines: what runs a model and shows its forward passes to a decoder."""
