"""Utilities for every package, in rooms; errors and the version."""
