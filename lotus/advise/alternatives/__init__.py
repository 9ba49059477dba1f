"""Alternatives to a program's operations: tried, applied, and shown as changes of its code."""
