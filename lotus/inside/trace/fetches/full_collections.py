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


def number() -> int:
    """Return how many full collections this process has had."""
    collections: int = gc.get_stats()[-1]["collections"]
    return collections


def log(recorder: Recorder, fetch: Fetch, count: int) -> None:
    """Record that a fetch had this many."""
    pid = os.getpid()
    recorded = _recorded[pid] = _recorded.get(pid, 0) + 1
    if recorded <= MOST:
        time_ns = fetch.begun[1]
        recorder.event({"event": "full_collections", "time_ns": time_ns, "count": count})
