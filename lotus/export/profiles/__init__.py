"""Times by their place in the program, for profile viewers."""
