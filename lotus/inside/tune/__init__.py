"""Runs trials of a program's loader in its own process, for `lotus tune`."""
