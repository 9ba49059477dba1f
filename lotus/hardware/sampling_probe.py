"""The event that this machine can sample, how often, and what an interrupt costs.

Events are tried on this thread: the kernel's announcements are not trusted.
"""

import contextlib
import ctypes
import errno
import math
import mmap
import os
import platform
import shutil
import statistics
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lotus.hardware.counter_probe import CPU_CLOCK, CYCLES
from lotus.inside.common.perf_event import SOFTWARE, Event

_FREQUENCIES = (997, 499, 199, 97, 49)  # primes: not in step with periodic work
_MOST_COST = 0.03  # of a core, that sampling may take
CHEAP_NS = 1e9 * _MOST_COST / 997  # of an interrupt
# <linux/perf_event.h>, PERF_ATTR_SIZE_VER3: up to the clock that stamps the samples
_ATTR = struct.Struct("<IIQQQQQIIQQQQIi")
_NO_KERNEL, _NO_HYPERVISOR, _FREQUENCY, _OWN_CLOCK = 1 << 5, 1 << 6, 1 << 10, 1 << 25
_IP_AND_TIME = 1 | 4  # sample_type
_HEADER, _TIME = struct.Struct("<IHH"), struct.Struct("<Q")
_THROTTLE, _SAMPLE = 5, 9  # record types
_PAGES = 8


@dataclass(frozen=True)
class ProbeSampling:
    """The sampling of its own thread by an event; `error` is the errno if the kernel refused it."""

    event: Event
    samples: int = 0
    throttled: int = 0
    error: int = 0
    monotonic: bool = False  # the samples' times are of CLOCK_MONOTONIC
    interrupt_ns: float | None = None  # the cost of one, None if it is below the noise


class Sampler:
    """An event of this thread that writes samples with CLOCK_MONOTONIC into a ring buffer."""

    def __init__(
        self, event: Event, frequency: int = 0, period: int = 0, kernel: bool = False
    ) -> None:
        """Raises OSError."""
        bits = 0 if kernel else _NO_KERNEL | _NO_HYPERVISOR
        bits |= _OWN_CLOCK | (_FREQUENCY if frequency else 0)
        attr = ctypes.create_string_buffer(
            _ATTR.pack(
                event.type, _ATTR.size, event.config, frequency or period, _IP_AND_TIME, 0, bits,
                0, 0, event.config1, 0, 0, 0, 0, time.CLOCK_MONOTONIC,
            )
        )  # fmt: skip
        syscall = ctypes.CDLL(None, use_errno=True).syscall
        syscall.restype = ctypes.c_long
        number = {"x86_64": 298, "i686": 336, "ppc64le": 319, "s390x": 331}
        syscall_number = ctypes.c_long(number.get(platform.machine(), 241))
        self._fd = int(syscall(syscall_number, attr, 0, -1, -1, ctypes.c_ulong(8)))
        if self._fd < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), event.name)
        try:
            self._ring = mmap.mmap(self._fd, (1 + _PAGES) * mmap.PAGESIZE)
        except BaseException:
            os.close(self._fd)
            raise

    def take(self) -> tuple[list[int], int]:
        """Return the times of the samples so far, and how often the kernel throttled the event."""
        head = struct.unpack_from("<Q", self._ring, 1024)[0]
        size = _PAGES * mmap.PAGESIZE
        data = self._ring[mmap.PAGESIZE :]
        place, times, throttled = 0, [], 0
        while place + 8 <= min(head, size):  # samples after the buffer was full were not written
            kind, _, length = _HEADER.unpack_from(data, place)
            if length < 8 or place + length > size:
                break
            if kind == _SAMPLE:
                times.append(_TIME.unpack_from(data, place + 16)[0])
            throttled += kind == _THROTTLE
            place += length
        return times, throttled

    def close(self) -> None:
        """Release the event and its buffer."""
        self._ring.close()
        os.close(self._fd)


OpenSampler = Callable[[Event, int, int], Sampler]


def sample(event: Event, frequency: int, open_sampler: OpenSampler = Sampler) -> ProbeSampling:
    """Sample a loop of some milliseconds. Never raises OSError."""
    begin = time.monotonic_ns()
    try:
        sampler = open_sampler(event, frequency, 0)
    except OSError as error:
        return ProbeSampling(event, error=error.errno or errno.EIO)
    times: list[int] = []
    throttled = 0
    try:
        # Time for 20 samples, at most three times: a busy machine may not let this thread run.
        for _ in range(3):
            _spin(20 / frequency)
            times, throttled = sampler.take()
            if times:
                break
    finally:
        sampler.close()
    end = time.monotonic_ns()
    monotonic = bool(times) and all(begin <= time_ns <= end for time_ns in times)
    return ProbeSampling(event, len(times), throttled, 0, monotonic)


def _spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        for _ in range(1000):
            pass


def interrupt_cost(
    event: Event, frequency: int, open_sampler: OpenSampler = Sampler
) -> float | None:
    """Return the nanoseconds of a sample's interrupt; None if they are below the noise.

    Compares the fastest of several runs of a loop with and without samples. Raises OSError.
    """
    period = (1_000_000_000 if event.type == SOFTWARE else 3_000_000_000) // frequency
    plain, sampled, numbers = [], [], []
    for _ in range(12):
        plain.append(_fixed_loop())
        sampler = open_sampler(event, 0, period)
        try:
            sampled.append(_fixed_loop())
            numbers.append(len(sampler.take()[0]))
        finally:
            sampler.close()
    samples = statistics.median(numbers)
    added_ns = min(sampled) - min(plain)
    noise = statistics.median(plain) - min(plain)
    return added_ns / samples if samples and added_ns > noise else None


def usual_cost(event: Event, frequency: int, open_sampler: OpenSampler = Sampler) -> float | None:
    """Return the median of three costs, as in a VM one may be an outlier. Raises OSError."""
    costs = [interrupt_cost(event, frequency, open_sampler) or 0.0 for _ in range(3)]
    return statistics.median(costs) or None


def _fixed_loop() -> int:
    begin = time.perf_counter_ns()
    for _ in range(200_000):
        pass
    return time.perf_counter_ns() - begin


def max_rate(root: Path, otherwise: int) -> int:
    """Return the samples per second that the kernel allows; `otherwise` if it does not say."""
    try:
        return int((root / "proc/sys/kernel/perf_event_max_sample_rate").read_text())
    except (OSError, ValueError):
        return otherwise


def frequency(root: Path = Path("/")) -> int:
    """Return the sampling frequency: 997 Hz, or less if the kernel allows less."""
    most = max_rate(root, _FREQUENCIES[0])
    return next((rate for rate in _FREQUENCIES if rate <= most), max(most, 1))


def sampling_event(
    virtual: bool | None = None,
    open_sampler: OpenSampler = Sampler,
    root: Path = Path("/"),
) -> tuple[str, int, str]:
    """Return the cheapest event to sample, as perf spells it, its frequency in Hz, and the reason.

    Hardware cycles if interrupts are cheap; the software clock in VMs, where they are expensive,
    and without hardware events. The event is "" if the kernel allows no sampling.
    """
    if virtual is None:
        from native_map.events import cpu

        virtual = cpu.detect().virtual
    rate = frequency(root)
    candidates = [] if virtual else [(CYCLES, "cycles:u", "hardware cycles")]
    why = "counter interrupts are expensive in a VM" if virtual else "cycles cannot be sampled here"
    candidates.append((CPU_CLOCK, "cpu-clock:u", f"the software clock: {why}"))
    error = 0
    for event, spelling, reason in candidates:
        sampled = sample(event, rate, open_sampler)
        if sampled.samples:
            slower = _affordable(event, rate, open_sampler)
            if slower < rate:
                reason += ", less often as each interrupt costs much"
            elif rate != _FREQUENCIES[0]:
                reason += ", as often as perf_event_max_sample_rate allows"
            return spelling, slower, reason
        error = sampled.error
    if error in (errno.EACCES, errno.EPERM) and perf_has_rights():
        return "cpu-clock:u", rate, "the software clock; perf's file has rights that lotus lacks"
    why = os.strerror(error) if error else "no sample came"
    return "", 0, f"the kernel allows no sampling ({why})"


def _affordable(event: Event, rate: int, open_sampler: OpenSampler) -> int:
    """Return the highest frequency up to `rate` that costs at most 3 % of a core.

    It is reduced only if the cost is too high in all of three measurements.
    """
    price = math.inf
    for _ in range(3):
        with contextlib.suppress(OSError):
            again = interrupt_cost(event, min(rate * 4, 4000), open_sampler)
            price = min(price, again or 0.0)
        if price * rate <= 1e9 * _MOST_COST or price == math.inf:
            return rate
    return next(
        (rate for rate in _FREQUENCIES if price * rate <= 1e9 * _MOST_COST), _FREQUENCIES[-1]
    )


def kernel_refused() -> bool:
    """Return True if this user may only sample user space; False also if no event can be opened."""
    try:
        Sampler(CPU_CLOCK, _FREQUENCIES[-1], kernel=True).close()
    except OSError as error:
        return error.errno in (errno.EACCES, errno.EPERM) and not perf_has_rights()
    return False


def perf_has_rights() -> bool:
    """Return True if the file of the perf on PATH has capabilities of its own (`setcap`)."""
    path = shutil.which("perf")
    try:
        return path is not None and bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False
