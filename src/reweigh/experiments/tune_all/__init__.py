"""Every method of a comparison tuned with the same budget, on the same records, by the same rule."""
