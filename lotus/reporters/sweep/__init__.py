"""Reports of a sweep."""
