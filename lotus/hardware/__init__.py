"""Counters and sampling rates that work on this machine, found by probing."""
