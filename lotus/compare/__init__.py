"""Runs and sweeps held against each other."""
