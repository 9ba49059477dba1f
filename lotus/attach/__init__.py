"""A running program looked at from outside: `lotus attach`."""
