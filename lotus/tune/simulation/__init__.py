"""Simulates a loader, or a job of many ranks, under other settings."""
