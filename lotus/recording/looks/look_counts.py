"""Counts of the states that processes were found in, and their sums by part of the program."""

from collections import Counter

# In place of an operation's number.
IN_OWN_CODE, IN_COLLATE, IN_NEXT, IN_STEP = -1, -2, -3, -4


class PartLooks:
    """Observations of a part of the program by process, of `of` of what it is a part of.

    `now`: the processes that were found in it when they were last observed.
    """

    def __init__(self) -> None:
        self.by_process: Counter[int] = Counter()
        self.now: set[int] = set()
        self.of = 0


class LookCounts:
    """Sums are kept, not made anew: a long run has thousands of processes that have ended."""

    def __init__(self) -> None:
        # (pid, worker, operation, reason)
        self.rows: Counter[tuple[int, int, int, str]] = Counter()
        self.own_code = PartLooks()  # of the making of batches
        self.collate = PartLooks()  # of the same
        self.computing_next = PartLooks()  # of main processes in `next`
        self.step = PartLooks()  # of main processes in their loops
        self.locked_step = PartLooks()  # of the same

    def add(self, pid: int, worker: int, operation: int, reason: str) -> None:
        """Count one observation."""
        self.rows[pid, worker, operation, reason] += 1
        is_step = operation == IN_STEP
        if operation not in (IN_NEXT, IN_STEP):
            _count(self.own_code, pid, operation == IN_OWN_CODE)
            _count(self.collate, pid, operation == IN_COLLATE)
        else:
            self.own_code.now.discard(pid)
            self.collate.now.discard(pid)
        if operation == IN_NEXT:
            _count(self.computing_next, pid, reason == "computing")
        if worker < 0:
            _count(self.step, pid, is_step)
            _count(self.locked_step, pid, is_step and reason == "lock")


def _count(part: PartLooks, pid: int, is_part: bool) -> None:
    part.of += 1
    if is_part:
        part.by_process[pid] += 1
        part.now.add(pid)
    else:
        part.now.discard(pid)
