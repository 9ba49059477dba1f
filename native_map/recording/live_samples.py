"""Takes samples live, without a perf process, through the kernel's Python binding.

The binding (Linux tools/perf/util/python.c) is installed with the system's perf for the system's
Python, outside virtual environments; it is used if its file fits this Python. It cannot select the
clock, so the kernel's clock is compared with CLOCK_MONOTONIC, by events that this thread causes.
"""

import contextlib
import ctypes
import fcntl
import importlib.machinery
import importlib.util
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd

from native_map.errors import Unusable

_WITHOUT = "`lotus trace --perf` samples through the perf command instead"
_PLACES = (
    "/usr/lib/python3/dist-packages",
    f"/usr/lib64/python{sys.version_info.major}.{sys.version_info.minor}/site-packages",
    f"/usr/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages",
)
# Of include/uapi/linux/perf_event.h, through the binding's own constants.
_EVENTS = {
    "cpu-clock": ("TYPE_SOFTWARE", "COUNT_SW_CPU_CLOCK"),
    "task-clock": ("TYPE_SOFTWARE", "COUNT_SW_TASK_CLOCK"),
    "page-faults": ("TYPE_SOFTWARE", "COUNT_SW_PAGE_FAULTS"),
    "cycles": ("TYPE_HARDWARE", "COUNT_HW_CPU_CYCLES"),
    "instructions": ("TYPE_HARDWARE", "COUNT_HW_INSTRUCTIONS"),
    "cache-misses": ("TYPE_HARDWARE", "COUNT_HW_CACHE_MISSES"),
    "branch-misses": ("TYPE_HARDWARE", "COUNT_HW_BRANCH_MISSES"),
}
_KERNEL, _USER = 1, 2
_IOC_DISABLE = 0x2401  # PERF_EVENT_IOC_DISABLE
_PAGES_PER_CPU = 128  # an unprivileged user may lock 129 pages a CPU (perf_event_mlock_kb)
_RECALIBRATE_NS = 1_000_000_000
_MAPPING = re.compile(r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) (\S{4}) ([0-9a-f]{1,16}) \S+ (\d+) *(.*)")
_SAMPLES: dict[str, Any] = {
    "time_ns": np.int64,
    "pid": np.int32,
    "tid": np.int32,
    "event": np.int16,
    "ip": np.uint64,
    "period": np.uint64,
    "cpu_mode": np.int8,
}
_MAPPINGS: dict[str, Any] = {
    "pid": np.int32,
    "start": np.uint64,
    "end": np.uint64,
    "offset": np.uint64,
    "time_ns": np.int64,
    "path": object,
    "build_id": object,
    "executable": bool,
}


def binding(places: tuple[str, ...] = _PLACES) -> ModuleType:
    """Return the module `perf`. Raises Unusable if there is none for this Python."""
    for place in places:
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = Path(place) / f"perf{suffix}"
            if not path.is_file():
                continue
            spec = importlib.util.spec_from_file_location("perf", path)
            if spec is None or spec.loader is None:
                continue
            try:
                module = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(module)
            except ImportError as error:
                raise Unusable(f"{path} cannot be loaded ({error}); {_WITHOUT}") from None
            return module
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    raise Unusable(
        f"the kernel's Python binding is not installed for Python {version} "
        f"(Debian: apt install linux-perf); {_WITHOUT}"
    )


class LiveSampler:
    """Samples a process, its threads and its present and future children.

    Raises Unusable if the event cannot be opened. Threads and children that start while it attaches
    may be missed, as by `perf record -p`. Use it from one thread only.
    """

    def __init__(
        self,
        pid: int,
        event: str = "cpu-clock",
        frequency: int = 997,
        kernel: bool = False,
        module: ModuleType | None = None,
    ) -> None:
        """`frequency` is in samples per second and CPU; `kernel` also samples the kernel."""
        self._perf: Any = module or binding()
        self.events = [event]
        self.lost = 0
        """The number of samples that the kernel dropped because `read` was called too late."""
        self._mappings: list[tuple[Any, ...]] = []
        kind, config = self._encode(event)
        processes = [pid, *_descendants(pid)]
        self._pages = 1 << max(1, min(6, (_PAGES_PER_CPU // len(processes)).bit_length() - 1))
        self._cpus = list(self._perf.cpu_map())
        self._clock = _Clock(self._perf)
        self._lists: list[_Events] = []
        for process in processes:
            evsel = self._perf.evsel(
                type=kind,
                config=config,
                freq=1,
                sample_freq=frequency,
                sample_type=self._perf.SAMPLE_IP
                | self._perf.SAMPLE_TID
                | self._perf.SAMPLE_TIME
                | self._perf.SAMPLE_PERIOD,
                exclude_kernel=int(not kernel),
                exclude_hv=1,
                mmap=1,
                task=1,
                sample_id_all=1,
                watermark=1,
                wakeup_events=1024,
            )
            try:
                self._lists.append(_Events(self._perf, evsel, {"pid": process}, self._pages, True))
            except (OSError, SystemError) as error:
                if process != pid:  # ended meanwhile
                    continue
                raise Unusable(
                    f"{event} of process {pid} cannot be sampled: {error}; `lotus doctor` says why"
                ) from None
            self._mappings += _mapped(process, time.monotonic_ns())

    def _encode(self, event: str) -> tuple[int, int]:
        if match := re.fullmatch(r"r([0-9a-fA-F]{1,16})", event):
            return self._perf.TYPE_RAW, int(match[1], 16)
        if event not in _EVENTS:
            raise Unusable(f"{event} cannot be sampled live; one of {', '.join(_EVENTS)} or rNNN")
        kind, config = _EVENTS[event]
        return getattr(self._perf, kind), getattr(self._perf, config)

    def __enter__(self) -> "LiveSampler":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the sampling. Samples that were not read are lost."""
        for events in (*self._lists, self._clock.events):
            events.close()
        self._lists.clear()

    def read(self) -> pd.DataFrame:
        """Return the samples since the last call (time_ns, pid, tid, event, ip, period, cpu_mode).

        They are sorted by time within one call; samples of another CPU may arrive a call later.
        """
        self._clock.calibrate()
        perf, to_monotonic = self._perf, self._clock.offset_ns
        rows: list[tuple[int, ...]] = []
        for events in self._lists:
            for cpu in self._cpus:
                while True:
                    try:
                        event = events.read(cpu)
                    except OSError:  # one record that the binding cannot parse
                        self.lost += 1
                        continue
                    if event is None:
                        break
                    if isinstance(event, perf.sample_event):
                        ip = event.sample_ip
                        rows.append(
                            (
                                event.sample_time + to_monotonic,
                                event.sample_pid,
                                event.sample_tid,
                                0,
                                ip,
                                event.sample_period,
                                # The binding hides the mode; kernel addresses have the top bit set.
                                _KERNEL if ip >> 63 else _USER,
                            )
                        )
                    elif isinstance(event, perf.lost_event):
                        self.lost += event.lost
                    elif isinstance(event, perf.mmap_event):
                        self._map(event, event.sample_time + to_monotonic)
                    elif isinstance(event, perf.task_event):
                        self._fork(event, event.sample_time + to_monotonic)
        table = pd.DataFrame(rows, columns=list(_SAMPLES)).astype(_SAMPLES)
        return table.sort_values("time_ns", kind="stable", ignore_index=True)

    def mappings(self) -> pd.DataFrame:
        """Return the mappings of files, with the time of each (columns as of perf.data).

        The binding does not report an exec: older mappings of a process stay, below newer ones.
        """
        return pd.DataFrame(self._mappings, columns=list(_MAPPINGS)).astype(_MAPPINGS)

    def _map(self, event: Any, time_ns: int) -> None:
        self._mappings.append(
            (
                event.pid,
                event.start,
                event.start + event.len,
                event.pgoff,
                time_ns,
                event.filename,
                "",
                True,
            )
        )

    def _fork(self, event: Any, time_ns: int) -> None:
        if event.type == self._perf.RECORD_FORK and event.pid != event.ppid:
            parents = [row for row in self._mappings if row[0] == event.ppid]
            self._mappings += [(event.pid, *row[1:4], time_ns, *row[5:]) for row in parents]


class _Clock:
    """Return the offset of the kernel's event clock to CLOCK_MONOTONIC, to a few microseconds."""

    def __init__(self, perf: Any) -> None:
        self._perf = perf
        self.offset_ns = 0
        self._calibrated_ns: int | None = None
        evsel = perf.evsel(
            type=perf.TYPE_SOFTWARE,
            config=perf.COUNT_SW_DUMMY,
            sample_type=perf.SAMPLE_TID | perf.SAMPLE_TIME,
            exclude_kernel=1,
            comm=1,
            sample_id_all=1,
            freq=0,
        )
        try:
            self.events = _Events(perf, evsel, {"tid": _own_tid()}, 2)
        except (OSError, SystemError) as error:
            raise Unusable(
                f"no event can be opened here: {error}; `lotus doctor` says why"
            ) from None
        self._prctl = ctypes.CDLL(None).prctl
        self.calibrate()

    def calibrate(self) -> None:
        """Set this thread's name to itself, and return the time that the kernel reports for it."""
        now_ns = time.monotonic_ns()
        if self._calibrated_ns is not None and now_ns - self._calibrated_ns < _RECALIBRATE_NS:
            return
        name = ctypes.create_string_buffer(16)
        self._prctl(16, name, 0, 0, 0)  # PR_GET_NAME
        best: tuple[int, int] | None = None
        for _ in range(5):
            before = time.monotonic_ns()
            self._prctl(15, name, 0, 0, 0)  # PR_SET_NAME
            after = time.monotonic_ns()
            seen = self._last()
            if seen is not None and (best is None or after - before < best[0]):
                best = (after - before, (before + after) // 2 - seen)
        if best is not None:
            self.offset_ns, self._calibrated_ns = best[1], now_ns
        elif self._calibrated_ns is None:
            raise Unusable(f"the kernel's clock of events could not be determined; {_WITHOUT}")

    def _last(self) -> int | None:
        latest = None
        for cpu in self._perf.cpu_map():
            while (event := self.events.read(cpu)) is not None:
                if isinstance(event, self._perf.comm_event):
                    latest = max(latest or 0, event.sample_time)
        return latest


class _Events:
    """An event opened for all threads of a process, or for one thread, and its buffers.

    The binding never closes its files, and the kernel samples while they are open or mapped. So
    this class finds out which descriptors and mappings of this process are new.
    """

    def __init__(
        self, perf: Any, evsel: Any, threads: dict[str, int], pages: int, inherit: bool = False
    ) -> None:
        """Raises OSError, or SystemError (from the binding), if it cannot be opened."""
        descriptors, buffers = _perf_descriptors(), _perf_buffers()
        self._evsel, opened = evsel, False
        try:
            cpus, watched = perf.cpu_map(), perf.thread_map(**threads)
            with _no_stderr():
                # Here and not in the event's settings, which this overrides.
                evsel.open(cpus=cpus, threads=watched, inherit=int(inherit))
                self._list = perf.evlist(cpus, watched)
                self._list.add(evsel)
                self._list.mmap(pages=pages)
            opened = True
        finally:
            self._descriptors = _perf_descriptors() - descriptors
            self._buffers = _perf_buffers() - buffers
            if not opened:
                self.close()

    def read(self, cpu: int) -> Any:
        """Return the next event of a CPU or None. Raises OSError if it cannot be parsed."""
        return self._list.read_on_cpu(cpu)

    def close(self) -> None:
        self._list = self._evsel = None
        for descriptor in self._descriptors & _perf_descriptors():
            with contextlib.suppress(OSError):
                fcntl.ioctl(descriptor, _IOC_DISABLE, 0)
            os.close(descriptor)
        libc = ctypes.CDLL(None)
        for start, length in self._buffers & _perf_buffers():
            libc.munmap(ctypes.c_void_p(start), ctypes.c_size_t(length))
        self._descriptors, self._buffers = set(), set()


def _perf_descriptors() -> set[int]:
    descriptors = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if "[perf_event]" in os.readlink(f"/proc/self/fd/{name}"):
                descriptors.add(int(name))
    return descriptors


def _perf_buffers() -> set[tuple[int, int]]:
    buffers = set()
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        match = _MAPPING.fullmatch(line)
        if match and "[perf_event]" in match[6]:
            start, end = int(match[1], 16), int(match[2], 16)
            buffers.add((start, end - start))
    return buffers


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    """Suppress output of the binding's library, which is meant for its authors."""
    try:
        kept = os.dup(2)
    except OSError:  # closed
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _own_tid() -> int:
    return int(os.readlink("/proc/thread-self").rpartition("/")[2])


def _descendants(pid: int) -> list[int]:
    """Return the children of a process, parents before their own children."""
    pids = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                for word in (task / "children").read_text().split():
                    pids += [int(word), *_descendants(int(word))]
    return pids


def _mapped(pid: int, time_ns: int) -> list[tuple[Any, ...]]:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    mappings = []
    for line in lines:
        match = _MAPPING.fullmatch(line)
        if match and "x" in match[3]:
            start, end, offset = (int(match[number], 16) for number in (1, 2, 4))
            path = match[6].removesuffix(" (deleted)") or "//anon"
            mappings.append((pid, start, end, offset, time_ns, path, "", True))
    return mappings
