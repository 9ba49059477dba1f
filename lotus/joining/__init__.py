"""Joins samples of perf, and stacks of py-spy, with operations."""
