"""Reports of jobs of many ranks."""
