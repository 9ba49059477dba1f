"""Observes a run while it is in progress: `lotus top`, `lotus trace --live`."""
