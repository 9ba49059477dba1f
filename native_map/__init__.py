"""From perf samples to functions and counters per operation; comes with a later version."""
