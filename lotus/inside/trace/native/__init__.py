"""The optional hooks in C, and their loader."""
