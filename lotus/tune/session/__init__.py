"""Tuning from start to end, of a program that is started for it or a loader in this process."""
