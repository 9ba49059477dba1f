"""Runs operations in isolation and reports the times of warm-up, gap and bucket."""

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
    from .request import IsolationRequest
# Least duration of a bucket, so that it gets many samples of perf.
_LEAST_BUCKET_NS = 50_000_000
# The calls of a bucket come in bursts, before each of which their inputs are copied.
_BURST_NS, _MOST_BURST, _MOST_LARGE = 2_000_000, 128, 16
_LARGE_COPY_NS = 50_000  # inputs that take longer to copy are large
_WARM_SHARE = 0.1  # of the calls of a bucket


def plan(
    call_ns: int, copy_ns: int, needed: int, runs: int, gap_ns: int, budget_ns: int
) -> tuple[int, int]:
    """Return (number of runs, calls in the bucket of each) that fit into the budget.

    The goal is `runs` runs of `needed` calls. If time is short, the number of calls is reduced
    first, then the number of runs. Gaps take at most half of the time.
    """
    runs = max(1, min(runs, budget_ns // (2 * gap_ns) if gap_ns else runs))
    call_cost = max(1, call_ns + copy_ns)
    available_ns = int((budget_ns - runs * gap_ns) / (1 + _WARM_SHARE))
    if available_ns < 2 * runs * call_cost:  # with one call to warm up
        runs = max(1, min(runs, budget_ns // (gap_ns + 2 * call_cost)))
        return runs, 1
    bucket_calls = max(needed, _LEAST_BUCKET_NS // max(1, call_ns))
    return runs, max(1, min(bucket_calls, available_ns // (runs * call_cost)))


class Bench:
    """Runs operations in buckets and reports their times."""

    def __init__(
        self, settings: IsolationRequest, say: Callable[[Mapping[str, object]], None]
    ) -> None:
        self.settings = settings
        self.say = say
        # Bursts have random lengths, as a rhythm might coincide with that of perf. This generator
        # is not the program's.
        self.random = random.Random(0)

    def measure(self, name: str, calls: list[Call]) -> None:
        """Run all runs of an operation. Raises InputCopyError, and what the operation raises."""
        settings = self.settings
        deadline = clock() + settings.budget_ns
        copy_ns, call_ns = self._try(calls, clock() + settings.budget_ns // 4)
        remaining_ns = max(1, deadline - clock())
        runs, size = plan(
            call_ns, copy_ns, settings.needed, settings.runs, settings.gap_ns, remaining_ns
        )
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
            calls_made = 0
            while calls_made < size and (not rows or clock() < deadline):
                most = min(burst, size - calls_made)
                many = self.random.randint(max(1, most // 2), most)
                rows.append(self._burst(source, many))
                calls_made += many
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
        """Call with each input once; return the ns of a copy and of a call."""
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
        """Make `many` calls on fresh copies; return start, end and the number of calls."""
        chosen = list(itertools.islice(source, many))
        prepared = [call.prepare() for call in chosen]
        # Results stay alive, as in the pipeline: freeing them is not part of the operation.
        results: list[Any] = [None] * many
        start = clock()
        for place, (function, args, kwargs) in enumerate(prepared):
            results[place] = function(*args, **kwargs)
        end = clock()
        return start, end, sum(call.count for call in chosen)

    def _rest(self, gap_ns: int) -> None:
        if gap_ns:
            select.select((), (), (), gap_ns / 1e9)
