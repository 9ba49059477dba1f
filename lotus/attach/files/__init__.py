"""The files that `lotus attach` writes into a run directory, checked when they are read."""
