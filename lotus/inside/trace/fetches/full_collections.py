"""Which fetches had a full collection of garbage, which looks at every object of the process.

The number of collections is read before and after a fetch. A callback of `gc` would tell their
times, but the program sees it, and it costs two calls in each collection, however small.
"""

from __future__ import annotations

import gc
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..fetch_state import Fetch
    from ..recorder import Recorder

MOST = 200  # fetches with one that a process records
_recorded: dict[int, int] = {}  # by its pid, so that a forked child begins anew
_counts: tuple[int, ...] = ()
_number = 0


def number() -> int:
    """Return how many full collections this process has had.

    To read that costs 11,000 instructions. Each collection, of whatever generation, changes the
    counts of the older generations, and to read these, with the rest here, costs 3,000.
    """
    global _counts, _number
    counts = gc.get_count()[1:]
    if counts != _counts or not any(counts):
        _counts, _number = counts, gc.get_stats()[-1]["collections"]
    return _number


def log(recorder: Recorder, fetch: Fetch, count: int) -> None:
    """Record that a fetch had this many."""
    pid = os.getpid()
    recorded = _recorded[pid] = _recorded.get(pid, 0) + 1
    if recorded <= MOST:
        time_ns = fetch.begun[1]
        recorder.event({"event": "full_collections", "time_ns": time_ns, "count": count})
