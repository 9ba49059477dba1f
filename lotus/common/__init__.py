"""Utilities for every package: errors, files, formatting, statistics, facts about the host."""
