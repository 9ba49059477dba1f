"""Events on a time axis, for trace viewers."""
