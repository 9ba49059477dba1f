"""Counters and functions per operation."""
