"""What calibration stores: tables, observations, operating points, and which model they belong to."""
