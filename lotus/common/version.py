"""The version of lotus."""

__version__ = "0.1.0"
