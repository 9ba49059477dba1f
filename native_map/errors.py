"""The exception of this package: something cannot be measured, read or mapped."""


class UnusableError(Exception):
    """Its text is one line for the user: what happened, what still works, what to type next."""
