"""Reports of counters and functions per operation."""
