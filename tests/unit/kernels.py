"""Made kernels: counters and samplers that lie as real ones do."""

import errno
import os
import struct
import time
from collections.abc import Sequence

from lotus.inside.common.perf_event import SOFTWARE, Event

LONG_AGO = 1_000_000_000


class Kernel:
    """A made kernel: `announced` counters fit a group and the first `right` of it count.

    `last_fails` False: it is the first event that reads 0 in a group that is too large.
    """

    def __init__(
        self,
        announced: int = 6,
        right: int = 6,
        zero: Sequence[str] = (),
        errors: dict[str, int] | None = None,
        refusal: int = 0,
        hardware: bool = True,
        last_fails: bool = True,
        running: float = 1.0,
        needs_slots: bool = False,
    ) -> None:
        self.announced, self.right, self.zero = announced, right, set(zero)
        self.errors, self.refusal, self.hardware = errors or {}, refusal, hardware
        self.last_fails, self.running, self.needs_slots = last_fails, running, needs_slots
        self.opened: list[list[str]] = []
        self.still_open = 0

    def open(self, events: Sequence[Event]) -> "Counters":
        self.opened.append([event.name for event in events])
        for event in events:
            code = self.errors.get(event.name, self.refusal)
            if code == 0 and event.type != SOFTWARE and not self.hardware:
                code = errno.ENOENT
            if self.needs_slots and event.name.startswith("topdown_") and events[0].name != "slots":
                code = errno.EINVAL
            if code:
                raise OSError(code, os.strerror(code), event.name)
        taking = [
            event
            for event in events
            if event.type != SOFTWARE
            and event.name != "slots"
            and not event.name.startswith("topdown_")
        ]
        if len(taking) > self.announced:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self.still_open += 1
        failing = None
        if len(taking) > self.right:
            failing = taking[-1] if self.last_fails else taking[0]
        return Counters(self, events, failing, self.running if len(taking) > 1 else 1.0)


class Counters:
    def __init__(
        self, kernel: Kernel, events: Sequence[Event], failing: Event | None, running: float
    ) -> None:
        self.kernel, self.running, self.reads = kernel, running, 0
        self.steps = [
            0 if event.name in kernel.zero else 16 if event.name == "page_faults" else 100_000
            for event in events
        ]
        if failing is not None:
            place = max(p for p, event in enumerate(events) if event == failing)
            self.steps[place] = 0

    def read(self) -> bytes:
        self.reads += 1
        elapsed = self.reads * 1_000_000
        words = [len(self.steps), elapsed, int(elapsed * self.running)]
        words += [step * self.reads for step in self.steps]
        return struct.pack(f"<{len(words)}Q", *words)

    def unpack(self, reading: bytes) -> tuple[int, int, list[int]]:
        words = struct.unpack(f"<{len(reading) // 8}Q", reading)
        return words[1], words[2], list(words[3:])

    def close(self) -> None:
        self.kernel.still_open -= 1


class Samples:
    """A made sampler: `count` samples, of now or of another clock."""

    def __init__(self, count: int = 20, now: bool = True) -> None:
        self.times = [time.monotonic_ns() if now else LONG_AGO] * count

    def take(self) -> tuple[list[int], int]:
        return self.times, 0

    def close(self) -> None:
        pass


def samplers(**known: object):
    """Opens samplers of the events named, each a `Samples` or an errno."""

    def open_sampler(event: Event, frequency: int, period: int) -> Samples:
        sampler = known.get(event.name, errno.ENOENT)
        if isinstance(sampler, int):
            raise OSError(sampler, os.strerror(sampler))
        return sampler

    return open_sampler
