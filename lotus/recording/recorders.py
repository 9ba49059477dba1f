"""The recorders that run beside one program, and their entries in run.json.

A recorder has its own session, so that signals from the terminal reach only the program, and it
follows the program by its process id. It may fail, hang or be killed: the program is not affected,
and a message says what is missing. If lotus is killed, a recorder ends with the program.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from lotus.format import manifest

Say = Callable[[str], None]
_T = TypeVar("_T")


class Sidecar(Protocol):
    """A recorder. None of its methods waits forever; a recorder that raises is ignored."""

    name: str

    def start(self, pid: int, directory: Path) -> None:
        """Attach to a process that waits to become the program."""

    def watch(self) -> float | None:
        """See whether all is well; returns after how many seconds to look again (None: never).

        It is first called when the program has started, and whenever a child of lotus has ended.
        """

    def stop(self) -> None:
        """End the recording; the program has ended."""

    def note(self) -> dict[str, Any]:
        """Return what run.json keeps of it; `problem` is a line or None."""


class Recorders:
    """The recorders of one run, and their part of its manifest."""

    def __init__(
        self, sidecars: Sequence[Sidecar], directory: Path, record: dict[str, Any]
    ) -> None:
        self._sidecars, self._directory, self._record = list(sidecars), directory, record
        self._notes: dict[str, Any] = {}

    def start(self, pid: int) -> None:
        """Attach all recorders to the program; none can fail the run."""
        self._each(lambda sidecar: sidecar.start(pid, self._directory.absolute()))
        # Not only at the end: lotus may be killed before.
        self._note()
        with contextlib.suppress(OSError):
            manifest.write(self._directory, self._record)

    def watch(self) -> float | None:
        """Return after how many seconds to look again, None for never."""
        times = self._each(lambda sidecar: sidecar.watch())
        return min((seconds for seconds in times if seconds is not None), default=None)

    def stop(self) -> None:
        """End all recorders and keep their notes."""
        self._each(lambda sidecar: sidecar.stop())
        self._note()

    def _note(self) -> None:
        self._each(lambda sidecar: self._notes.update({sidecar.name: sidecar.note()}))
        self._record["recorders"] = dict(self._notes)

    def _each(self, call: Callable[[Sidecar], _T]) -> list[_T]:
        """Call a function for each recorder; one that raises, a bug, is then ignored."""
        results = []
        for sidecar in list(self._sidecars):
            try:
                results.append(call(sidecar))
            except Exception as error:
                self._sidecars.remove(sidecar)
                self._notes[sidecar.name] = {"problem": f"{type(error).__name__}: {error}"}
        return results
