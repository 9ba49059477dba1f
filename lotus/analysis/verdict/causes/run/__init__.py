"""Causes at the edges of a loop, outside of it, and of a program as a whole."""
