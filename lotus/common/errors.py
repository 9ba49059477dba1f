"""The one exception that a command shows as a line instead of a traceback."""


class LotusError(Exception):
    """The error and the next step, in one line; `exit_code` is the command's."""

    exit_code = 2
