"""How long main processes have been between their loops, from looks at them."""

from typing import NamedTuple


class Pause(NamedTuple):
    """A pause between two loops of a process: whether it goes on, and its seconds so far."""

    goes_on: bool
    seconds: float


class PauseTimes:
    """The pauses of all main processes."""

    def __init__(self) -> None:
        self._begun: dict[int, float] = {}  # by process, seconds

    def look(self, pid: int, in_pause: bool, now: float) -> Pause:
        """Note whether a process is between its loops `now` (seconds, of any clock).

        Returns the pause that it is in, or that it was in until now: of 0 s if it was in none.
        """
        begun = self._begun.setdefault(pid, now) if in_pause else self._begun.pop(pid, now)
        return Pause(in_pause, now - begun)
