"""The main job on the embedded model: base against ReWEIGH, scored, shown and explained, with no download."""
