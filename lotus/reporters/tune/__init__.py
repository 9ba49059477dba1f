"""Reports of tuning and of simulated settings."""
