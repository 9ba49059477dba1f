"""The exception of this package: something cannot be measured, read or mapped."""


class Unusable(Exception):
    """One line for the user: what happened, what still works, the command to type next."""
