"""What a program printed, but for what Python adds to it by chance."""

import re

_TRACKED = re.compile(r".*resource_tracker.*\n(  warnings\.warn\(\n)?")


def without_tracker(err: str) -> list[str]:
    """The lines of a program's stderr without those of Python's resource tracker.

    At times it warns of semaphores that a process which just ends has removed, also without lotus.
    """
    return _TRACKED.sub("", err).splitlines()
