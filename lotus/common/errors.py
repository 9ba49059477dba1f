"""The one exception that a command shows as a line instead of a traceback."""


class LotusError(Exception):
    """What went wrong and what to do next, in one line; `exit_code` is the command's."""

    exit_code = 2
