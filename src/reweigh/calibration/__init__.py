"""Calibration: run the unmodified model on unlabeled images, keep its observations, register references."""
