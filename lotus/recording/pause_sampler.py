"""Samples Python stacks of the main process in long pauses between its loops, with py-spy.

It starts some way into a pause, and the first look that finds the pause over ends it. So its stacks
are of the pause, but for those since the look before.
"""

from pathlib import Path

from lotus.format.run_directory import PAUSE_CODE
from lotus.recording.py_spy_child import PySpyChild

_LONG_S = 0.5  # a pause of less is not sampled


class PauseSampler:
    """`sample` has the stacks."""

    def __init__(self, directory: Path) -> None:
        self.sample = PySpyChild(directory / PAUSE_CODE)
        self._begun: dict[int, float] = {}  # by process, seconds

    def look(self, pid: int, in_pause: bool, now: float) -> None:
        """Note whether a main process is between its loops `now` (seconds, of any clock)."""
        if not in_pause:
            self._begun.pop(pid, None)
            if pid == self.sample.pid:
                self.sample.interrupt()
        elif now - self._begun.setdefault(pid, now) >= _LONG_S:
            self.sample.start(pid)
