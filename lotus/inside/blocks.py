"""Measures some batches of a candidate, one after the other."""

from __future__ import annotations

import os
import time

from . import contents, processes
from .watch import Failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .loading import Loading
    from .running import Away
    from .watch import Watch

_LOOKING = 0.05  # of the time, at most, goes to measuring what is in the batches


def measure(
    loading: Loading | Away,
    watch: Watch,
    *,
    seconds: float,
    least: int,
    discard: int,
    step: Callable[[Any], object] | None,
) -> dict[str, Any]:
    """A lotus.tune.trying.Block of `loading`, as a dict. Raises Failed.

    No batch may take longer than the limit of `watch`. Once that has passed in all, what was
    counted until then is returned, also where it is less than was asked for.
    """
    began = time.perf_counter()

    def late() -> bool:
        return time.perf_counter() - began > watch.limit_s

    for done in range(discard):
        if late():
            raise Failed(
                f"after {watch.limit_s:g} s it had given {done} of the {discard} batches that "
                "may lie ready"
            )
        loading.take(watch)
    usage = loading.usage
    usage.reset()
    usage.start(loading.pids())
    waits: list[float] = []
    steps: list[float] = []
    sizes: list[int] = []
    main_cpu_s = looked_s = total_s = 0.0
    largest: dict[str, int] = {}
    while (total_s < seconds or len(waits) < least) and not (waits and late()):
        batch, wait_s, cpu_s = loading.take(watch)
        waits.append(wait_s)
        main_cpu_s += cpu_s
        sizes.append(loading.samples(batch))
        if not largest or looked_s <= _LOOKING * total_s:
            before = time.perf_counter()
            found = contents.measures(batch)
            largest = {name: max(value, largest.get(name, 0)) for name, value in found.items()}
            looked_s += time.perf_counter() - before
        before = time.perf_counter()
        if step is not None:
            with watch.off():
                step(batch)
        steps.append(time.perf_counter() - before if step is not None else 0.0)
        total_s += waits[-1] + steps[-1]
    usage.add()
    return {
        "waits_s": waits,
        "steps_s": steps,
        "sizes": sizes,
        "worker_cpu_s": usage.cpu_s,
        "worker_queued_s": usage.queued_s,
        "main_cpu_s": main_cpu_s,
        **largest,
        "worker_bytes": max(processes.private_bytes(pid) for pid in loading.pids()),
        "main_bytes": processes.resident_bytes(os.getpid()),
        "read_bytes": usage.read_bytes,
    }
