"""Comparison of a job's ranks: their steps, the straggler, and the reason."""
