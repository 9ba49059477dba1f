"""Loaders and their iterations, in the main process and in workers."""
