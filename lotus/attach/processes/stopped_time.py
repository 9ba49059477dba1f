"""When a watched process was stopped (SIGSTOP, a debugger): the program does nothing meanwhile."""

from typing import TYPE_CHECKING

from lotus.common.formatting import duration

if TYPE_CHECKING:
    from lotus.analysis.common.columns import Bools, Ints

Span = tuple[int, int]


class StoppedTime:
    """From the look before the first that found a process stopped to the one that found it go on.

    While one process is stopped, the others of its program wait for it: the time is left out for
    all of them.
    """

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._since: dict[int, int] = {}  # of the processes that are stopped now
        self._spans: dict[int, list[Span]] = {}

    def look(self, pid: int, now_ns: int, stopped: bool) -> None:
        """Note what a look at a process found."""
        if stopped:
            self._since.setdefault(pid, self._last.get(pid, now_ns))
        elif (since := self._since.pop(pid, None)) is not None:
            self._spans.setdefault(pid, []).append((since, now_ns))
        self._last[pid] = now_ns

    def spans(self, pid: int) -> list[Span]:
        """When a process was stopped, by time."""
        still = [(self._since[pid], self._last[pid])] if pid in self._since else []
        return [*self._spans.get(pid, ()), *still]

    @property
    def joined(self) -> list[Span]:
        """When any process was stopped: spans that do not meet, by time."""
        result: list[Span] = []
        pids = {*self._spans, *self._since}
        for begin, end in sorted(span for pid in pids for span in self.spans(pid)):
            if result and begin <= result[-1][1]:
                result[-1] = result[-1][0], max(result[-1][1], end)
            else:
                result.append((begin, end))
        return result

    @property
    def sentence(self) -> str:
        """Which processes were stopped, and how long; "" where none was."""
        pids = sorted({*self._spans, *self._since})
        if not pids:
            return ""
        took = sum(end - begin for begin, end in self.joined)
        which = f"process {pids[0]}" if len(pids) == 1 else f"processes {', '.join(map(str, pids))}"
        was = "was" if len(pids) == 1 else "were"
        return f"{which} {was} stopped (SIGSTOP) for {duration(took)}: that time is left out"

    def overlaps(self, begin_ns: "Ints", end_ns: "Ints", margin_ns: int = 0) -> "Bools":
        """Whether each of these spans overlaps with it.

        `margin_ns`: how far their clock may be from that of the looks.
        """
        import numpy as np  # not before the first look

        result = np.zeros(len(begin_ns), np.bool_)
        for begin, end in self.joined:
            result |= (begin_ns < end + margin_ns) & (end_ns > begin - margin_ns)
        return result
