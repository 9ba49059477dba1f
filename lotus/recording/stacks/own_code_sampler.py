"""Samples Python stacks where data set, sampler or training step are slow: py-spy, two seconds.

Both of a process that makes batches and of one that takes them, where both are worth it.
"""

from collections.abc import Container
from pathlib import Path

from lotus.format import stack_frames
from lotus.format.run_directory import OWN_CODE
from lotus.recording.looks.look_counts import PartLooks
from lotus.recording.stacks.pause_times import Pause
from lotus.recording.stacks.py_spy_child import PySpyChild

_LEAST_LOOKS = 15
MAKING, TAKING = "making", "taking"  # batches
_FETCHER, _OUR_FETCH = f"{stack_frames.FETCHER}:", ";fetch (<lotus hook"
_SHORT_S = 0.05  # a pause of less has two or three samples


def _is_of_making(stack: str) -> bool:
    return _FETCHER in stack or _OUR_FETCH in stack


class OwnCodeSampler:
    """`sample` has the stacks."""

    def __init__(self, directory: Path) -> None:
        self.sample = PySpyChild(directory / OWN_CODE)

    def consider(
        self, part: PartLooks, least_share: float, running: Container[int], subject: str = MAKING
    ) -> None:
        """Start if it is worth it, for the process with most of it among those that still run.

        It is from `least_share` (0 to 1) of what the part belongs to.
        """
        own = part.by_process
        left = [pid for pid in own if pid in running]
        # Not one that makes few batches itself, between those that its workers make.
        left = [pid for pid in left if pid in part.now] or left
        if left and own.total() >= max(_LEAST_LOOKS, least_share * part.of):
            wanted = _is_of_making if subject == MAKING else None
            self.sample.start(max(left, key=lambda pid: own[pid]), subject, wanted)

    def look(self, pid: int, pause: Pause) -> None:
        """End one of a main process that is between its loops: it is of what is in them.

        A short pause ends none: little of short epochs would be seen.
        """
        if pause.goes_on and pause.seconds >= _SHORT_S and pid == self.sample.pid:
            self.sample.interrupt()
