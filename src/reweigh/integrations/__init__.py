"""Thin integrations with other programs: they import this package, never the reverse."""
