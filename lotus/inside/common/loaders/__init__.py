"""Loaders of the program: where they are made, their names and their threads."""
