"""Samples joined with intervals, and counts with confidence intervals."""
