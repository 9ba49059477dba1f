"""Causes in which cores are missing."""
