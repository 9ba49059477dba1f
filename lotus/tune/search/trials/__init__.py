"""The trials of a search and their rates."""
