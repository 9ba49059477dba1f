"""Imports what the end of `lotus trace` needs while the program still runs.

pandas takes half a second of CPU time to import, longer than analysing a small run. It is imported
while the program still imports torch and what follows, with one thread: later it would take a core
from the loop, and at the end the user would wait for it. The import has normal priority: at a lower
one it would delay the end if other programs use the cores.
"""

import contextlib
import gc
import importlib
import threading
from pathlib import Path

from lotus.format import process_reports

_TORCH = b'{"event": "torch"'  # as inside/trace/tracer.py begins the line
_LOOK_S = 0.1  # importing torch goes on for longer after it is reported
_NEEDED = ("lotus.reading.run", "lotus.reporters.run.short_report")


class EarlyImport:
    """A context around waiting for the program. Imports nothing if that has no loader of torch."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
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
        if not self._sees_torch():
            return
        with contextlib.suppress(Exception):  # whoever needs it gets the error, and reports it
            gc.disable()  # modules stay: a search for garbage in them costs a tenth of the import
            try:
                for name in _NEEDED:
                    importlib.import_module(name)
            finally:
                gc.freeze()
                gc.enable()

    def _sees_torch(self) -> bool:
        """Wait until a process imports torch's loader; False: the program ended before."""
        read = 0
        while not self._ended.wait(_LOOK_S):
            with contextlib.suppress(OSError):  # no Python has started yet
                with open(self._directory / process_reports.NAME, "rb") as file:
                    file.seek(read)
                    new = file.read()
                if _TORCH in new:  # a line is written at once
                    return True
                read += len(new)
        return False
