"""`perf record` beside a program that was not started by lotus, and the names of its functions."""

import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lotus.attach.processes.tied_process import TiedProcess
from lotus.attach.threads.thread_readings import has_ended
from lotus.hardware.sampling_probe import kernel_refused, sampling_event
from native_map.errors import UnusableError
from native_map.recording import perf_command

_INSTALL = "apt install linux-perf (or linux-tools-$(uname -r))"
_MOST_SAMPLES = 1_000_000  # they are kept in a text file
_LEAST_RATE = 49
# perf records nothing at all if one of its processes ends while it starts, as after a short epoch.
# It follows workers that are forked later through their parent.
_MOST_STARTS = 4


class PerfRecorder:
    """Samples processes and those that they start later. `problem`: why it does not, or ""."""

    def __init__(self, pids: Sequence[int], seconds: float, output: Path) -> None:
        self.problem = ""
        self._output = output
        self._child: TiedProcess | None = None
        self._starts, self._begin_ns, self._late_ns = 0, time.monotonic_ns(), 0
        self._kernel = not kernel_refused()
        event, rate, why = sampling_event()
        # Each core in use gives `rate` samples a second.
        most = _MOST_SAMPLES / max(seconds, 1.0) / (os.cpu_count() or 1)
        rate = max(min(rate, int(most)), min(rate, _LEAST_RATE))
        event = event.removesuffix(":u") if self._kernel else event
        self._event, self._rate = event, rate
        path = shutil.which("perf")
        if path is None:
            self.problem = f"perf is not installed; {_INSTALL}"
        elif not event:
            self.problem = f"{why}; lotus doctor says what would help"
        else:
            self._path = path
            self._start(pids, pids)

    def _start(self, pids: Sequence[int], mains: Sequence[int]) -> None:
        """Start perf on the processes that still run; at the last try only on `mains`."""
        self._starts += 1
        pids = mains if self._starts == _MOST_STARTS else pids
        pids = [pid for pid in pids if not has_ended(pid)]
        if not pids:
            self.problem = "all processes had ended before perf was started"
            return
        sampling = perf_command.Sampling((self._event,), self._rate, self._kernel)
        words = perf_command.command(self._path, pids, str(self._output), sampling)
        try:
            self._child = TiedProcess(words)
            self._late_ns = time.monotonic_ns() - self._begin_ns
        except OSError as error:
            self.problem = f"perf cannot be started: {error.strerror}"

    def watch(self, pids: Sequence[int], mains: Sequence[int]) -> None:
        """Start perf again if a process ended while perf started; `pids` are alive."""
        if self._child is None or self.problem or not self._child.ended():
            return
        text = self._child.text()
        vanished = not perf_command.finished(text) and perf_command.missed_process(text)
        if vanished and self._starts < _MOST_STARTS and pids:
            self._start(pids, mains)

    def stop(self) -> None:
        """End the sampling."""
        if self._child is None:
            return
        problem = self._child.finish()
        text = self._child.text()
        if problem:
            self.problem = problem
        elif not perf_command.finished(text) and self._child.signal != signal.SIGINT:
            self.problem = perf_command.reason(text, [self._event])

    def kill(self) -> None:
        """End perf and discard its samples."""
        if self._child is not None:
            self._child.kill()
        self._output.unlink(missing_ok=True)

    def functions(self) -> dict[str, Any] | None:
        """Return the samples in the form that `function_file.write` takes; None if there are none.

        The files of libraries are read now, while the program and its container still exist.
        """
        if self._child is None or self.problem:
            return None
        import numpy as np  # these: not before the first look

        from native_map.recording import perf_data
        from native_map.symbols.symbolizer import Symbols

        try:
            recording = perf_data.read(self._output)
            samples = recording.samples.sort_values("time_ns", kind="stable", ignore_index=True)
            symbols = Symbols(kernel=self._kernel)
            names = symbols.resolve(recording.mappings, samples, recording.forks, recording.comms)
        except UnusableError as error:
            self.problem = str(error).partition(";")[0]
            return None
        finally:
            self._output.unlink(missing_ok=True)
        if recording.clock != "monotonic":
            self.problem = "this perf does not know CLOCK_MONOTONIC; install a newer perf"
            return None
        if not len(samples):
            self.problem = "no thread was on a core while perf sampled"
            return None
        pairs = list(zip(names["library"].astype(str), names["function"].astype(str), strict=True))
        numbers: dict[tuple[str, str], int] = {}
        codes = [numbers.setdefault(pair, len(numbers)) for pair in pairs]
        return {
            "event": self._event,
            "frequency": self._rate,
            "kernel": self._kernel,
            "lost": int(recording.lost["count"].sum()),
            "cpu_ns": self._child.cpu_ns or 0,
            "names": [list(pair) for pair in numbers],
            "samples": {
                "time_ns": samples["time_ns"].astype(np.int64).tolist(),
                "pid": samples["pid"].tolist(),
                "tid": samples["tid"].tolist(),
                "function": codes,
            },
            "notes": [*self.notes, *symbols.notes[:10]],
        }

    @property
    def notes(self) -> list[str]:
        """Return remarks on samples that were lost because perf was started several times."""
        if self._starts < 2:
            return []
        only = ", at last on the main processes and the workers that they started then"
        return [
            f"Processes ended while perf started, so it was started {self._starts} times"
            f"{only if self._starts == _MOST_STARTS else ''}; the first "
            f"{self._late_ns / 1e9:.1f} s have no samples."
        ]
