"""Statistics, and the types of numpy's arrays."""
