"""Which counters and sampling rates work on this machine, found by probing."""
