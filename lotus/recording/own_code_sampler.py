"""Samples Python stacks where data set, sampler or training step are slow: py-spy, two seconds."""

from collections.abc import Container
from pathlib import Path

from lotus.format.run_directory import OWN_CODE
from lotus.recording.py_spy_child import PySpyChild

_LEAST_LOOKS = 25
_SHORT_S = 0.05  # a pause of less has two or three samples


class OwnCodeSampler:
    """`sample` has the stacks."""

    def __init__(self, directory: Path) -> None:
        self.sample = PySpyChild(directory / OWN_CODE)
        self._pause_begun: dict[int, float] = {}  # by process

    def consider(
        self, own: dict[int, int], everything: int, least_share: float, running: Container[int]
    ) -> None:
        """Start if it is worth it, for the process with most of it among those that still run.

        `own`: looks at the program's own code, by process; `everything`: looks at what it is a part
        of, of which `least_share` (0 to 1) makes it worth it.
        """
        count, left = sum(own.values()), [pid for pid in own if pid in running]
        if left and count >= _LEAST_LOOKS and count >= least_share * everything:
            self.sample.start(max(left, key=lambda pid: own[pid]))

    def look(self, pid: int, in_pause: bool, now: float) -> None:
        """End one of a main process that is between its loops: it is of what is in them.

        `now`: seconds, of any clock. A short pause ends none: little of short epochs would be seen.
        """
        if not in_pause:
            self._pause_begun.pop(pid, None)
        elif now - self._pause_begun.setdefault(pid, now) >= _SHORT_S and pid == self.sample.pid:
            self.sample.interrupt()
