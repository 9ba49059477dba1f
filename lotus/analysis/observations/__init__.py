"""Observations of threads: the calls in which they were blocked, and their lines."""
