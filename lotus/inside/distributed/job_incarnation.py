"""What names a start of a job in its store, which after a restart may be the same as before.

torch 2.14 gives the ranks of a restarted job the store that they had, with all that was left there,
and their counts of restarts may differ (TORCHELASTIC_RESTART_COUNT is each host's own). So rank 0
draws a name for each start and lets the others in under it; who found the name of an earlier start
is let in by nobody, and looks again.
"""

import os

from .store_timeout import looks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Alone(Exception):
    """Rank 0 did not answer."""


class Start:
    """This start of the job as one process knows it."""

    def __init__(self) -> None:
        self.name = ""
        self.came = 0  # rank 0: how many of the others were let in

    def named(self, store: "Any", rank: int, wait_s: float) -> str:
        """Its name, the same on all ranks. Raises Alone, and what the store raises."""
        if not self.name:
            self.name = self._drawn(store) if rank == 0 else _told(store, wait_s)
        return self.name

    def _drawn(self, store: "Any") -> str:
        name = os.urandom(8).hex()
        store.set("start", name)
        store.add("started", 1)
        return name

    def let_in(self, store: "Any") -> None:
        """Rank 0: let in who has come; never waits."""
        came = store.add(f"{self.name}/came", 0)
        for number in range(self.came + 1, came + 1):
            store.add(f"{self.name}/in{number}", 1)
        self.came = came


def _told(store: "Any", wait_s: float) -> str:
    name, number = "", 0
    for _ in looks(wait_s):
        if store.add("started", 0):
            now = bytes(store.get("start")).decode()
            if now != name:
                name, number = now, store.add(f"{now}/came", 1)
            if store.add(f"{name}/in{number}", 0):
                return name
    raise Alone(f"rank 0 did not answer within {wait_s:g} s")
