"""Applies loader settings to the program's loaders."""
