"""Finds the operations of a data set, by type and by library."""
