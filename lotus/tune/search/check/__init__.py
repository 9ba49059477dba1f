"""The check of a result in the program's own training."""
