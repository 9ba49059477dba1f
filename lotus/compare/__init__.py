"""Comparison of runs and of sweeps."""
