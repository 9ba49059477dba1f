"""The recorders that run beside one program, and what run.json keeps of them."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lotus.format import manifest

if TYPE_CHECKING:
    from lotus.recording.sidecars import Sibling

_T = TypeVar("_T")


class Recorders:
    """The recorders of one run, and their part of its manifest."""

    def __init__(
        self, siblings: Sequence["Sibling"], directory: Path, record: dict[str, Any]
    ) -> None:
        self._siblings, self._directory, self._record = list(siblings), directory, record
        self._notes: dict[str, Any] = {}

    def start(self, pid: int) -> None:
        """Attach all recorders to the program; none can fail the run."""
        self._each(lambda sibling: sibling.start(pid, self._directory.absolute()))
        # Already now: lotus may be killed before the end.
        self._note()
        with contextlib.suppress(OSError):
            manifest.write(self._directory, self._record)

    def watch(self) -> float | None:
        """Return after how many seconds to look again, None for never."""
        times = self._each(lambda sibling: sibling.watch())
        return min((seconds for seconds in times if seconds is not None), default=None)

    def stop(self) -> None:
        """End all recorders and keep their notes."""
        self._each(lambda sibling: sibling.stop())
        self._note()

    def _note(self) -> None:
        self._each(lambda sibling: self._notes.update({sibling.name: sibling.note()}))
        self._record["recorders"] = dict(self._notes)

    def _each(self, call: Callable[["Sibling"], _T]) -> list[_T]:
        """Call a function for each recorder; one that raises, a bug, is then ignored."""
        results = []
        for sibling in list(self._siblings):
            try:
                results.append(call(sibling))
            except Exception as error:
                self._siblings.remove(sibling)
                self._notes[sibling.name] = {"problem": f"{type(error).__name__}: {error}"}
        return results
