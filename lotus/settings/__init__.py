"""Loader settings, spaces of settings, and the files that hold them."""
