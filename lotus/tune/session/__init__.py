"""Tuning from start to end: a program that is started for it, or a loader in this process."""
