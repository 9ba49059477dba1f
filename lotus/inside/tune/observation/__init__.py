"""Chooses the loader to tune, and observes how the program uses it."""
