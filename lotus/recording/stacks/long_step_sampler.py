"""Samples Python stacks of the main process in steps that take far longer than others, with py-spy.

Such a step, as one that saves a checkpoint, may be too rare for the two seconds of a loop that are
sampled. It starts some way into one, sooner after one that was long, and the first look that finds
the step over ends it.
"""

from collections.abc import Sequence
from pathlib import Path

from lotus.format.run_directory import LONG_STEP_CODE
from lotus.inside.trace.log import state_page
from lotus.recording.stacks.py_spy_child import PySpyChild

_TIMES = 4.0  # as long as a batch takes on average, with its wait
_LEAST_BATCHES = 8  # from which that is known
_LONG_S = 0.5  # a step of less is not sampled, but for one after one of `_REPEATED_S`
_REPEATED_S = 0.3  # py-spy takes most of that to start
_SOON_S = 0.05


class _Loop:
    """One that a main process was last seen in, from the first look at it; times in seconds."""

    def __init__(self, key: tuple[int, int], since: float, batch: int) -> None:
        self.key, self._since, self._batch = key, since, batch
        self.each = 0.0  # of its batches; 0.0: not known

    def look(self, since: float, batch: int) -> None:
        if batch - self._batch >= _LEAST_BATCHES:
            self.each = (since - self._since) / (batch - self._batch)


class LongStepSampler:
    """`sample` has the stacks."""

    def __init__(self, directory: Path) -> None:
        self.sample = PySpyChild(directory / LONG_STEP_CODE)
        self._loops: dict[int, _Loop] = {}  # by process
        self._longest: dict[int, float] = {}  # seconds that one was seen to last, by process
        self._since = 0.0  # of the step that is sampled

    def look(self, pid: int, words: Sequence[int], now: float, beside: int) -> None:
        """Start one of a main process in a long step, or end it with the step.

        `words`: of its page; `now`: seconds of CLOCK_MONOTONIC; `beside`: the process that another
        py-spy looks at.
        """
        since, phase = words[state_page.W_SINCE] / 1e9, words[state_page.W_PHASE]
        if self.sample.pid == pid and (phase != state_page.STEP or since != self._since):
            self.sample.interrupt()
        if phase != state_page.STEP:
            return
        lasted, each = now - since, self._each(pid, words, since)
        if not 0 < _TIMES * each <= lasted:
            return
        longest = self._longest.get(pid, 0.0)
        least = _SOON_S if longest >= _REPEATED_S else _LONG_S
        self._longest[pid] = max(lasted, longest)
        if lasted >= least and beside != pid and self.sample.pid < 0:
            self._since = since
            self.sample.start(pid)

    def _each(self, pid: int, words: Sequence[int], since: float) -> float:
        """Return how long a batch of the loop takes on average; 0.0: not known."""
        loader, epoch, batch = words[state_page.W_LOADER : state_page.W_BATCH + 1]
        key = loader, epoch
        loop = self._loops.get(pid)
        if loop is None or loop.key != key:
            before = loop.each if loop is not None and loop.key[0] == key[0] else 0.0
            loop = self._loops[pid] = _Loop(key, since, batch)
            loop.each = before
        loop.look(since, batch)
        return loop.each
