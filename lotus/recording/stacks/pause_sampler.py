"""Samples Python stacks of the main process in long pauses between its loops, with py-spy.

It starts some way into a pause, sooner after one that was long, and the first look that finds the
pause over ends it. So its stacks are of the pause, but for those since the look before.
"""

from pathlib import Path

from lotus.format.run_directory import PAUSE_CODE
from lotus.recording.stacks.pause_times import Pause
from lotus.recording.stacks.py_spy_child import PySpyChild

_LONG_S = 0.5  # a pause of less is not sampled, but for one after one of `_REPEATED_S`
_REPEATED_S = 0.3  # py-spy takes most of that to start
_SOON_S = 0.05  # pauses between training and validation are shorter


class PauseSampler:
    """`sample` has the stacks."""

    def __init__(self, directory: Path) -> None:
        self.sample = PySpyChild(directory / PAUSE_CODE)
        self._longest: dict[int, float] = {}  # pause by process, seconds

    def look(self, pid: int, pause: Pause) -> None:
        """Start one of a main process in a long pause, or end it with the pause."""
        if not pause.goes_on:
            self._longest[pid] = max(pause.seconds, self._longest.get(pid, 0.0))
            if pid == self.sample.pid:
                self.sample.interrupt()
            return
        least = _SOON_S if self._longest.get(pid, 0.0) >= _REPEATED_S else _LONG_S
        if pause.seconds >= least:
            self.sample.start(pid)
