"""Names each start of a job in the job's store, which may outlive a restart.

torch 2.14 gives the ranks of a restarted job the same store, with everything that it contained, and
their restart counts may differ (each host has its own TORCHELASTIC_RESTART_COUNT). So rank 0 draws
a name for each start and admits the other ranks under it. A rank that reads the name of an earlier
start is not admitted and reads again.
"""

import os

from .store_timeout import attempts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class NoAnswerError(Exception):
    """Rank 0 did not answer."""


class Start:
    """The current start of the job, as one process knows it."""

    def __init__(self) -> None:
        self.name = ""
        self.admitted = 0  # on rank 0: how many other ranks were admitted

    def named(self, store: "Any", rank: int, wait_s: float) -> str:
        """Return its name, which is the same on all ranks.

        Raises NoAnswerError, and whatever the store raises.
        """
        if not self.name:
            self.name = self._draw(store) if rank == 0 else _read_name(store, wait_s)
        return self.name

    def _draw(self, store: "Any") -> str:
        name = os.urandom(8).hex()
        store.set("start", name)
        store.add("started", 1)
        return name

    def admit(self, store: "Any") -> None:
        """On rank 0, admit the ranks that have arrived; never waits."""
        came = store.add(f"{self.name}/came", 0)
        for number in range(self.admitted + 1, came + 1):
            store.add(f"{self.name}/in{number}", 1)
        self.admitted = came


def _read_name(store: "Any", wait_s: float) -> str:
    name, number = "", 0
    for _ in attempts(wait_s):
        if store.add("started", 0):
            now = bytes(store.get("start")).decode()
            if now != name:
                name, number = now, store.add(f"{now}/came", 1)
            if store.add(f"{name}/in{number}", 0):
                return name
    raise NoAnswerError(f"rank 0 did not answer within {wait_s:g} s")
