"""Causes in the making of batches."""
