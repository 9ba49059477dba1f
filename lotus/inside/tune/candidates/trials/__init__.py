"""Trials: candidates opened and timed, block by block."""
