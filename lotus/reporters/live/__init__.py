"""Reports of a run in progress."""
