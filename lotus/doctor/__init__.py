"""`lotus doctor`: the environment, the PMU, checks, and the command that closes each gap."""
