"""From perf samples and counters to functions and counts per operation. Never imports lotus."""
