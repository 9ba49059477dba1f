"""What `lotus attach` writes into a run directory, and reads with suspicion."""
