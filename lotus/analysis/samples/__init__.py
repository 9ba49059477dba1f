"""Samples and operations: their durations, and the slow ones."""
