"""A torch of another time: its loader works, and is not as we know it."""

__version__ = "99.0"
