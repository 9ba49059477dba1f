"""Loader settings put on loaders where the program makes them."""
