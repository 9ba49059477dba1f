"""Shared by all packages inside the program: guard, patching, origin of code."""
