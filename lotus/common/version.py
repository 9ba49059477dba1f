"""The version of lotus."""

__version__ = "0.2.0"
