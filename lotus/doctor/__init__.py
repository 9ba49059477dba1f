"""`lotus doctor`: the environment, the PMU, checks, and a command to close each gap."""
