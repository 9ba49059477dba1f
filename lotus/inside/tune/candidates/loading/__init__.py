"""Loaders of candidates: their batches, indices, streams and files."""
