"""The loop over time, for charts."""
