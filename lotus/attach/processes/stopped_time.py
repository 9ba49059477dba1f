"""Notes when watched processes were stopped, by SIGSTOP or a debugger."""

from typing import TYPE_CHECKING

from lotus.common.text.formatting import duration

if TYPE_CHECKING:
    from lotus.common.numbers.array_types import Bools, Ints

Span = tuple[int, int]


class StoppedTime:
    """Spans of time in which processes were stopped.

    A span begins at the last look before the process was found stopped and ends at the look that
    found it running again. The other processes of its program wait for it, so the time is left
    out for all of them.
    """

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._since: dict[int, int] = {}  # of the processes that are stopped now
        self._spans: dict[int, list[Span]] = {}

    def look(self, pid: int, now_ns: int, stopped: bool) -> None:
        """Note whether a look at `now_ns` found a process stopped."""
        if stopped:
            self._since.setdefault(pid, self._last.get(pid, now_ns))
        elif (since := self._since.pop(pid, None)) is not None:
            self._spans.setdefault(pid, []).append((since, now_ns))
        self._last[pid] = now_ns

    def spans(self, pid: int) -> list[Span]:
        """Return the spans (begin, end) in nanoseconds in which a process was stopped, sorted."""
        still = [(self._since[pid], self._last[pid])] if pid in self._since else []
        return [*self._spans.get(pid, ()), *still]

    @property
    def joined(self) -> list[Span]:
        """Return disjoint spans in nanoseconds in which any process was stopped, sorted."""
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
        """Return a sentence that says which processes were stopped for how long; "" if none."""
        pids = sorted({*self._spans, *self._since})
        if not pids:
            return ""
        took = sum(end - begin for begin, end in self.joined)
        which = f"process {pids[0]}" if len(pids) == 1 else f"processes {', '.join(map(str, pids))}"
        was = "was" if len(pids) == 1 else "were"
        return f"{which} {was} stopped (SIGSTOP) for {duration(took)}: that time is left out"

    def overlaps(self, begin_ns: "Ints", end_ns: "Ints", margin_ns: int = 0) -> "Bools":
        """Return for each span (n,) whether it overlaps with time in which a process was stopped.

        margin_ns: largest difference between the clock of the spans and that of the looks.
        """
        import numpy as np  # not before the first look

        result = np.zeros(len(begin_ns), np.bool_)
        for begin, end in self.joined:
            result |= (begin_ns < end + margin_ns) & (end_ns > begin - margin_ns)
        return result
