"""Reports of advice."""
