"""Samples and operations: how long each took, and which of them were slow."""
