"""Values for a training framework's loggers after each epoch, and the verdict at the end.

Used by the callbacks of Lightning and transformers. An error here never reaches the training: it is
one line on stderr, and the training continues without it.
"""

import contextlib
import importlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from lotus.common.terminal.stderr import say
from lotus.format import run_directory
from lotus.live.log_digest import WANTED, LogDigest
from lotus.live.tailing import Tail
from lotus.recording import session

_T = TypeVar("_T")
# Analysing the run takes longer as it grows: limit it to this share of the time since it was last
# analysed.
_JUDGING_SHARE = 0.01
_MOST_LOG = 64 << 20  # bytes of the logs: about a second to judge


class TrainingLog:
    """Records the process's loaders from `start` to `finish`.

    In a program under `lotus trace`, that run is read and nothing else is recorded. `directory`: of
    the run (default: lotus-runs/SCRIPT-TIME).
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None, level: str = "op") -> None:
        self._wanted, self._level = directory, level
        self._recording: Any = None  # the context manager of lotus.trace, while it is entered
        self._path: Path | None = None
        self._active = self._broken = False

    @property
    def path(self) -> Path | None:
        """The run directory; None before `start`."""
        return self._path

    def start(self) -> None:
        """Start recording. A second call before `finish` does nothing."""
        if not self._active:
            self._guarded(self._start, None)

    def epoch(self) -> dict[str, float]:
        """Return what was measured since the last call; {} if nothing was.

        lotus/wait_share: share of the wall time blocked in the loaders' `next`;
        lotus/samples_per_s: samples made; lotus/cause_share/KIND: the first cause of the run so far
        and its share of the loop. The cause is determined after the first epoch, and again after
        epochs by whose end a hundred times as long has passed as that took.
        """
        return self._guarded(self._epoch, {}) if self._active else {}

    def finish(self) -> list[str]:
        """End the recording and return the verdict as lines; [] under `lotus trace`, which says it.

        A second call returns [].
        """
        active, self._active = self._active, False
        return self._guarded(self._finish, []) if active and self._recording is not None else []

    def _start(self) -> None:
        importlib.import_module("lotus.analysis.summary")  # pandas, before the first epoch
        outer = os.environ.get("LOTUS_RUN")
        if outer and "_lotus_inside" in sys.modules:
            self._path = Path(outer)
        else:
            path = self._wanted or run_directory.make_plain([sys.argv[0] or "training"])
            recording = session.trace(path, level=self._level)
            self._path = recording.__enter__().path
            self._recording = recording
        self._tail, self._digest = Tail(self._path, WANTED), LogDigest()
        self._begin_values()
        self._active = True

    def _begin_values(self) -> None:
        self._since = (time.monotonic_ns(), 0, 0)
        self._judged_ns, self._judging_ns = self._since[0], 0

    def _epoch(self) -> dict[str, float]:
        assert self._path is not None
        while True:
            self._digest.add(self._tail.read())
            if not self._tail.behind:
                break
        mine = [log for key, log in self._digest.logs.items() if key[1] == os.getpid()]
        samples = sum(size for log in self._digest.logs.values() for size, _ in log.sizes.values())
        before, waited, samples_made = self._since
        now, waits = time.monotonic_ns(), sum(log.waited_ns for log in mine)
        if not mine or now <= before:
            return {}
        seconds = (now - before) / 1e9
        values = {
            "lotus/wait_share": min((waits - waited) / (now - before), 1.0),
            "lotus/samples_per_s": (samples - samples_made) / seconds,
        }
        affordable = self._judging_ns <= _JUDGING_SHARE * (now - self._judged_ns)
        if affordable and self._size() <= _MOST_LOG:
            values |= self._first_cause()
            self._judged_ns = time.monotonic_ns()
            self._judging_ns = self._judged_ns - now
        self._since = time.monotonic_ns(), waits, samples  # the analysis is not part of an epoch
        self._note(now, self._since[0])
        return values

    def _note(self, start_ns: int, end_ns: int) -> None:
        """Record that this time is lotus's own, not the program's."""
        active: Any = sys.modules.get("_lotus_inside.trace.active")
        tracer = None if active is None else active.tracer
        if tracer is not None and tracer.on:
            times = {"start_ns": start_ns, "end_ns": end_ns}
            tracer.recorder.event({"event": "callback", **times})

    def _size(self) -> int:
        assert self._path is not None
        return sum(path.stat().st_size for path in (self._path / "events").glob("*.ltr"))

    def _first_cause(self) -> dict[str, float]:
        from lotus.analysis.summary import summarise
        from lotus.reading.run import load

        judged = summarise(load(self._path or Path()), slowest=0).verdict
        if judged is None or not judged.causes:
            return {}
        return {f"lotus/cause_share/{judged.causes[0].kind}": judged.causes[0].share}

    def _finish(self) -> list[str]:
        from lotus.reading.run import load
        from lotus.reporters.run import short_report

        recording, self._recording = self._recording, None
        recording.__exit__(None, None, None)
        assert self._path is not None
        return [*short_report.short_report(load(self._path)), f"next: lotus report {self._path}"]

    def _guarded(self, function: Callable[[], _T], otherwise: _T) -> _T:
        if self._broken:
            return otherwise
        try:
            return function()
        except Exception as error:
            self._broken, self._active = True, False
            say(f"lotus: {type(error).__name__}: {error}; the training goes on without its log")
            recording, self._recording = self._recording, None
            if recording is not None:
                with contextlib.suppress(Exception):
                    recording.__exit__(None, None, None)
            return otherwise
