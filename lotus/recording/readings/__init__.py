"""Readings of the machine and of the program's processes."""
