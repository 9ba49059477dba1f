"""Candidate loaders: made from the program's own with another setting, measured, and ended."""
