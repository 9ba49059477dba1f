"""Causes in the training step, and what holds the interpreter."""
