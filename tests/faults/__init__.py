"""Damage, kills, full disks: what the package does when something goes wrong under it."""
