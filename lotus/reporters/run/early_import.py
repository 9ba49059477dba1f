"""Imports what the end of `lotus trace` needs while the program still runs.

pandas takes half a second of CPU time to import, longer than analysing a small run. It is imported
once the program records its data loading, so that the user does not wait for it at the end. The
import has normal priority: at a lower one it would delay the end if other programs use the cores.
"""

import contextlib
import gc
import importlib
import threading
from pathlib import Path

_LOOK_S = 0.5
_NEEDED = ("lotus.reading.run", "lotus.reporters.run.short_report")


class EarlyImport:
    """A context around waiting for the program. Imports nothing without a log of events."""

    def __init__(self, directory: Path) -> None:
        self._events = directory / "events"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lotus-import", daemon=True)

    def __enter__(self) -> "EarlyImport":
        # Entered while the launcher's signals are blocked: numpy's threads, which inherit that,
        # do not take them.
        with contextlib.suppress(RuntimeError):  # no thread can be started: the program comes first
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        # Do not wait for an import in progress; whoever needs it will.
        self._ended.set()

    def _run(self) -> None:
        while not self._events.is_dir():
            if self._ended.wait(_LOOK_S):
                return
        with contextlib.suppress(Exception):  # whoever needs it gets the error, and reports it
            gc.disable()  # modules stay: a search for garbage in them costs a tenth of the import
            try:
                for name in _NEEDED:
                    importlib.import_module(name)
            finally:
                gc.freeze()
                gc.enable()
