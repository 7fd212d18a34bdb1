"""Files: written atomically, sealed, and checked when they are read."""
