"""How the data are divided among the workers, and what of them comes again."""
