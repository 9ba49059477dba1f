"""Runs operations by themselves, for `isolation.py`, and says when: warm-up, gap and bucket."""

from __future__ import annotations

import itertools
import os
import random
import select
import threading

from ..common.clocks import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from .input_capture import Call
    from .request import Settings
# A bucket lasts at least this long, so that many samples of perf fall into it.
_LEAST_BUCKET_NS = 50_000_000
# The calls of a bucket come in bursts, before each of which their inputs are copied.
_BURST_NS, _MOST_BURST, _MOST_LARGE = 2_000_000, 128, 16
_LARGE_COPY_NS = 50_000  # who takes longer to copy is large
_WARM_SHARE = 0.1  # of the calls of a bucket


def plan(
    call_ns: int, copy_ns: int, needed: int, runs: int, gap_ns: int, budget_ns: int
) -> tuple[int, int]:
    """How many runs, and how many calls in the bucket of each, fit into the budget.

    Wanted are `runs` runs of `needed` calls; there are fewer calls where the time is short, then
    fewer runs. The gaps take at most half of the time.
    """
    runs = max(1, min(runs, budget_ns // (2 * gap_ns) if gap_ns else runs))
    each = max(1, call_ns + copy_ns)
    left = int((budget_ns - runs * gap_ns) / (1 + _WARM_SHARE))
    if left < 2 * runs * each:  # with one call to warm up
        runs = max(1, min(runs, budget_ns // (gap_ns + 2 * each)))
        return runs, 1
    wanted = max(needed, _LEAST_BUCKET_NS // max(1, call_ns))
    return runs, max(1, min(wanted, left // (runs * each)))


class Bench:
    """Runs operations in buckets and says when."""

    def __init__(self, settings: Settings, say: Callable[[Mapping[str, object]], None]) -> None:
        self.settings = settings
        self.say = say
        # Bursts of changing length: a rhythm could fall in with perf's. Not the program's numbers.
        self.random = random.Random(0)

    def measure(self, name: str, calls: list[Call]) -> None:
        """All runs of one operation. Raises what the operation raises, and CannotCopy."""
        settings = self.settings
        deadline = clock() + settings.budget_ns
        copy_ns, call_ns = self._try(calls, clock() + settings.budget_ns // 4)
        left = max(1, deadline - clock())
        runs, size = plan(call_ns, copy_ns, settings.needed, settings.runs, settings.gap_ns, left)
        burst = min(_MOST_BURST, max(1, _BURST_NS // max(1, call_ns)))
        if copy_ns > _LARGE_COPY_NS:
            burst = min(burst, _MOST_LARGE)
        source = itertools.cycle(calls)
        for run in range(runs):
            if run and clock() >= deadline:
                break
            self._burst(source, max(1, min(len(calls), int(size * _WARM_SHARE))))
            self._rest(settings.gap_ns)
            rows: list[tuple[int, int, int]] = []
            done = 0
            while done < size and (not rows or clock() < deadline):
                most = min(burst, size - done)
                many = self.random.randint(max(1, most // 2), most)
                rows.append(self._burst(source, many))
                done += many
            self.say(
                {
                    "event": "run",
                    "operation": name,
                    "run": run,
                    "pid": os.getpid(),
                    "tid": threading.get_native_id(),
                    "intervals": rows,
                }
            )

    def _try(self, calls: list[Call], deadline: int) -> tuple[int, int]:
        """Each input once; ns of a copy and of a call."""
        copies, times = [], []
        for call in calls:
            start = clock()
            function, args, kwargs = call.prepare()
            ready = clock()
            function(*args, **kwargs)
            copies.append(ready - start)
            times.append(clock() - ready)
            if clock() > deadline:
                break
        middle = len(times) // 2  # the first call is often slower than all others
        return sorted(copies)[middle], sorted(times)[middle]

    def _burst(self, source: Iterator[Call], many: int) -> tuple[int, int, int]:
        """`many` calls on fresh copies; start, end and how many calls they stand for."""
        chosen = list(itertools.islice(source, many))
        prepared = [call.prepare() for call in chosen]
        # What is returned lives on, as in the pipeline: to free it is not the operation's work.
        results: list[Any] = [None] * many
        start = clock()
        for place, (function, args, kwargs) in enumerate(prepared):
            results[place] = function(*args, **kwargs)
        end = clock()
        return start, end, sum(call.count for call in chosen)

    def _rest(self, gap_ns: int) -> None:
        if gap_ns:
            select.select((), (), (), gap_ns / 1e9)
