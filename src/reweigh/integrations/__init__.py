"""Thin ties to other people's programs; they may import this package, never the reverse."""
