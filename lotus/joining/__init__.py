"""Samples joined with operations: perf's, and the stacks of py-spy."""
