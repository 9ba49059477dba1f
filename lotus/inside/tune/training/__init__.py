"""Times stretches of the program's own training, for `lotus tune` to compare settings."""
