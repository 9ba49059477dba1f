"""What the counters of this machine do, found by counting loops whose work is known.

What the kernel announces is not believed: an event that reads 0 where it cannot be 0 is broken,
whatever its running time says, and a group counts rightly if each event in it counts as it does
alone.
"""

import contextlib
import ctypes
import errno
import functools
import itertools
import mmap
import os
import platform
import shutil
import statistics
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lotus.errors import LotusError
from lotus.inside import perf_event
from lotus.inside.perf_event import HARDWARE, SOFTWARE, Event

if TYPE_CHECKING:  # imported when a group is chosen
    from native_map import pmu
    from native_map.cpu import Cpu
    from native_map.events.model import Table

CYCLES = Event("cycles", HARDWARE, 0)
INSTRUCTIONS = Event("instructions", HARDWARE, 1)
GENERIC = (
    CYCLES,
    INSTRUCTIONS,
    Event("branches", HARDWARE, 4),
    Event("branch_misses", HARDWARE, 5),
    Event("cache_references", HARDWARE, 2),
    Event("cache_misses", HARDWARE, 3),
    Event("stalled_cycles_frontend", HARDWARE, 7),
    Event("stalled_cycles_backend", HARDWARE, 8),
)
CPU_CLOCK = Event("cpu_clock", SOFTWARE, 0)
SOFTWARE_EVENTS = (
    CPU_CLOCK,
    Event("task_clock", SOFTWARE, 1),
    Event("page_faults", SOFTWARE, 2),
    # A switch happens in the kernel: without `k` it is never seen.
    Event("context_switches", SOFTWARE, 3, flags="uk"),
)
# Can truly be 0 in the loop; all others cannot.
_MAY_BE_ZERO = ("migrations", "major", "emulation", "alignment", "dram", "llc", "l3", "remote")
_TRIES = 3  # noise does not come three times; a broken counter does
_TOLERANCE = 2.0  # between an event's count alone and in a group: cycles vary on a busy machine
_MOST_AT_ONCE = 12
_FREQUENCIES = (997, 499, 199, 97, 49)  # primes: in step with nothing that ticks
_MOST_COST = 0.03  # of a core, that sampling may take
CHEAP_NS = 1e9 * _MOST_COST / 997  # of an interrupt


class Group(Protocol):
    """What is needed of `perf_event.Group`."""

    def read(self) -> bytes: ...

    def unpack(self, reading: bytes, /) -> tuple[int, int, list[int]]: ...

    def close(self) -> None: ...


OpenGroup = Callable[[Sequence[Event]], Group]


@functools.cache
def _memory() -> bytearray:
    """More than the inner caches hold; written, as untouched pages would all be the same one."""
    return bytearray(b"\1") * (8 << 20)


def known_loop() -> None:
    """About a millisecond of work in which every usual event happens: a few million instructions,
    as many branches mispredicted as Python needs, far reads, 16 page faults, a context switch."""
    memory, total = _memory(), 0
    for place in range(0, len(memory), 4099):
        total += memory[place]
    for number in range(10_000):
        if number * 2654435761 & 64:
            total += number
    with mmap.mmap(-1, 16 * mmap.PAGESIZE) as pages:
        for place in range(0, len(pages), mmap.PAGESIZE):
            pages[place] = 1
    time.sleep(20e-6)


@dataclass(frozen=True)
class Counted:
    """What an event counted alone on the loop: `count` is None where the kernel refused it."""

    event: Event
    count: int | None
    running: float  # share of the time in which it was counted
    error: int = 0  # errno of the refusal

    @property
    def works(self) -> bool:
        if self.count is None or self.running <= 0:
            return False
        return self.count > 0 or any(word in self.event.name.lower() for word in _MAY_BE_ZERO)

    @property
    def state(self) -> str:
        """`counts`, `zero` (opens, but reads 0 where it cannot be 0), `refused` or `absent`."""
        if self.count is None:
            return "refused" if self.error in (errno.EPERM, errno.EACCES) else "absent"
        return "counts" if self.works else "zero"


@dataclass(frozen=True)
class Capacity:
    """How many hardware events fit a group: as the kernel has it, and as they count rightly."""

    announced: int
    right: int
    wrong: tuple[str, ...]  # that failed in the first group that was announced but wrong
    running: float  # the smallest running/enabled seen in a group that was announced
    bounded: bool  # whether a larger group was refused, so that `announced` is the most


def settle() -> None:
    """Let this thread be switched out and in again.

    Linux (seen on 6.18) starts the clock events of a group that are not its first only then: read
    at once, cpu-clock and task-clock count 0 for some milliseconds at 100 % running time.
    """
    time.sleep(1e-9)


class Probe:
    """Counts the loop and remembers what each event counted alone."""

    def __init__(
        self,
        open_group: OpenGroup = perf_event.Group,
        work: Callable[[], None] = known_loop,
    ) -> None:
        self._open, self._work = open_group, work
        work()  # what is done only once is not to be counted
        self._alone: dict[Event, Counted] = {}

    def _measure(self, events: Sequence[Event]) -> tuple[list[int], float]:
        """Counts of one loop and running/enabled. Raises OSError if it cannot be opened."""
        group = self._open(events)
        try:
            try:
                settle()
                enabled, running, first = group.unpack(group.read())
                self._work()
                then, ran, second = group.unpack(group.read())
            except ValueError:  # a pinned group that found no room
                return [0] * len(events), 0.0
        finally:
            group.close()
        share = (ran - running) / (then - enabled) if then > enabled else 0.0
        return [new - old for new, old in zip(second, first, strict=True)], share

    def alone(self, event: Event) -> Counted:
        """What it counts alone (asked once). Never raises for what the kernel answers."""
        if event not in self._alone:
            self._alone[event] = self._count(event)
        return self._alone[event]

    def _count(self, event: Event) -> Counted:
        counted = Counted(event, None, 0.0, errno.ENOENT)
        for _ in range(_TRIES):
            try:
                counts, running = self._measure([event])
            except OSError as error:
                return Counted(event, None, 0.0, error.errno or errno.EIO)
            counted = Counted(event, counts[0], running)
            if counts[0] > 0 and running > 0.99:
                break
        return counted

    def behind(self, leader: Event, event: Event) -> None:
        """Count an event that opens only in a group led by another, in place of alone."""
        try:
            counts, running = self._measure([leader, event])
        except OSError as error:
            self._alone[event] = Counted(event, None, 0.0, error.errno or errno.EIO)
        else:
            self._alone[event] = Counted(event, counts[1], running)

    def works(self, event: Event) -> bool:
        return self.alone(event).works

    def fits(self, events: Sequence[Event]) -> bool:
        """Whether these can be counted at once and each then counts as it does alone."""
        if not all(self.works(event) for event in events):
            return False
        return _counts_rightly(self, events)

    def wrong(self, events: Sequence[Event]) -> tuple[list[str], float]:
        """Events that count something else in this group than alone, and running/enabled.

        An event is wrong if it was so each time. Raises OSError where the group is refused.
        """
        wrong, lowest = [event.name for event in events], 1.0
        for _ in range(_TRIES):
            counts, running = self._measure(events)
            lowest = min(lowest, running)
            now = [
                event.name
                for event, count in zip(events, counts, strict=True)
                if running < 0.99 or not self._as_alone(event, count)
            ]
            wrong = [name for name in wrong if name in now]
            if not wrong:
                break
        return wrong, lowest

    def _as_alone(self, event: Event, count: int) -> bool:
        alone = self.alone(event).count or 0
        if alone < 1000:  # too few to compare
            return count > 0 or alone < 16
        return alone / _TOLERANCE <= count <= alone * _TOLERANCE

    def largest(self, events: Iterable[Event]) -> Capacity:
        """Grow a group of the events that work, repeating them, until it is refused."""
        pool = [event for event in events if self.works(event)]
        announced = right = 0
        wrong: list[str] = []
        lowest = 1.0
        bounded = False
        for size in range(1, _MOST_AT_ONCE + 1) if pool else ():
            group = [pool[place % len(pool)] for place in range(size)]
            try:
                failed, running = self.wrong(group)
            except OSError:
                bounded = True
                break
            announced, lowest = size, min(lowest, running)
            if not failed and right == size - 1:
                right = size
            elif not wrong:
                wrong = failed
        return Capacity(announced, right, tuple(wrong), lowest, bounded)


@dataclass(frozen=True)
class Cost:
    """What reading costs: nanoseconds, and what each event counts of it."""

    read_ns: float
    clock_ns: float
    counts: dict[str, float]


def cost(events: Sequence[Event], open_group: OpenGroup = perf_event.Group) -> Cost:
    """The median cost of reading this group, over 200 reads. Raises OSError."""
    group = open_group(events)
    try:
        settle()
        times, readings = [], []
        for _ in range(200):
            begin = time.perf_counter_ns()
            reading = group.read()
            times.append(time.perf_counter_ns() - begin)
            readings.append(reading)
        values = [group.unpack(reading)[2] for reading in readings]
    finally:
        group.close()
    clock_ns = clock_cost()
    counts = {
        event.name: statistics.median(
            new[place] - old[place] for old, new in itertools.pairwise(values)
        )
        for place, event in enumerate(events)
    }
    return Cost(max(statistics.median(times) - clock_ns, 0.0), clock_ns, counts)


def clock_cost() -> float:
    """Nanoseconds of one `time.monotonic_ns`: the median of 20 times 500."""
    times = []
    for _ in range(20):
        begin = time.perf_counter_ns()
        for _ in range(500):
            time.monotonic_ns()
        times.append((time.perf_counter_ns() - begin) / 500)
    return statistics.median(times)


# <linux/perf_event.h>, PERF_ATTR_SIZE_VER3: up to the clock that stamps the samples
_ATTR = struct.Struct("<IIQQQQQIIQQQQIi")
_NO_KERNEL, _NO_HYPERVISOR, _FREQUENCY, _OWN_CLOCK = 1 << 5, 1 << 6, 1 << 10, 1 << 25
_IP_AND_TIME = 1 | 4  # sample_type
_HEADER, _TIME = struct.Struct("<IHH"), struct.Struct("<Q")
_THROTTLE, _SAMPLE = 5, 9  # record types
_PAGES = 8


@dataclass(frozen=True)
class Sampled:
    """How an event samples its own thread: `error` is the errno where the kernel refused."""

    event: Event
    samples: int = 0
    throttled: int = 0
    error: int = 0
    monotonic: bool = False  # whether their times are of CLOCK_MONOTONIC
    interrupt_ns: float | None = None  # the cost of one, None where it drowns in the noise


class Sampler:
    """An event of this thread that writes samples into a ring, stamped with CLOCK_MONOTONIC."""

    def __init__(self, event: Event, frequency: int = 0, period: int = 0) -> None:
        """Raises OSError."""
        bits = _NO_KERNEL | _NO_HYPERVISOR | _OWN_CLOCK | (_FREQUENCY if frequency else 0)
        attr = ctypes.create_string_buffer(
            _ATTR.pack(
                event.type, _ATTR.size, event.config, frequency or period, _IP_AND_TIME, 0, bits,
                0, 0, event.config1, 0, 0, 0, 0, time.CLOCK_MONOTONIC,
            )
        )  # fmt: skip
        syscall = ctypes.CDLL(None, use_errno=True).syscall
        syscall.restype = ctypes.c_long
        number = {"x86_64": 298, "i686": 336, "ppc64le": 319, "s390x": 331}
        one = ctypes.c_long(number.get(platform.machine(), 241))
        self._fd = int(syscall(one, attr, 0, -1, -1, ctypes.c_ulong(8)))
        if self._fd < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), event.name)
        try:
            self._ring = mmap.mmap(self._fd, (1 + _PAGES) * mmap.PAGESIZE)
        except BaseException:
            os.close(self._fd)
            raise

    def take(self) -> tuple[list[int], int]:
        """The times of the samples so far, and how often the kernel held the event back."""
        head = struct.unpack_from("<Q", self._ring, 1024)[0]
        size = _PAGES * mmap.PAGESIZE
        data = self._ring[mmap.PAGESIZE :]
        place, times, throttled = 0, [], 0
        while place + 8 <= min(head, size):  # what came after a full ring was not written
            kind, _, length = _HEADER.unpack_from(data, place)
            if length < 8 or place + length > size:
                break
            if kind == _SAMPLE:
                times.append(_TIME.unpack_from(data, place + 16)[0])
            throttled += kind == _THROTTLE
            place += length
        return times, throttled

    def close(self) -> None:
        self._ring.close()
        os.close(self._fd)


OpenSampler = Callable[[Event, int, int], Sampler]


def sample(event: Event, frequency: int, open_sampler: OpenSampler = Sampler) -> Sampled:
    """Sample a loop of some milliseconds. Never raises for what the kernel answers."""
    begin = time.monotonic_ns()
    try:
        sampler = open_sampler(event, frequency, 0)
    except OSError as error:
        return Sampled(event, error=error.errno or errno.EIO)
    times: list[int] = []
    throttled = 0
    try:
        # 20 samples' worth, thrice at most: a busy machine may not let us run.
        for _ in range(3):
            _spin(20 / frequency)
            times, throttled = sampler.take()
            if times:
                break
    finally:
        sampler.close()
    end = time.monotonic_ns()
    monotonic = bool(times) and all(begin <= one <= end for one in times)
    return Sampled(event, len(times), throttled, 0, monotonic)


def _spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        for _ in range(1000):
            pass


def interrupt_cost(
    event: Event, frequency: int, open_sampler: OpenSampler = Sampler
) -> float | None:
    """Nanoseconds of one sample's interrupt; None where it cannot be told from noise.

    The fastest of some runs of one loop with samples and without. Raises OSError.
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
    more = min(sampled) - min(plain)
    noise = statistics.median(plain) - min(plain)
    return more / samples if samples and more > noise else None


def _fixed_loop() -> int:
    begin = time.perf_counter_ns()
    for _ in range(200_000):
        pass
    return time.perf_counter_ns() - begin


def _max_rate(root: Path, otherwise: int) -> int:
    try:
        return int((root / "proc/sys/kernel/perf_event_max_sample_rate").read_text())
    except (OSError, ValueError):
        return otherwise


def frequency(root: Path = Path("/")) -> int:
    """The frequency to sample at: 997 Hz, or less where the kernel allows less."""
    most = _max_rate(root, _FREQUENCIES[0])
    return next((one for one in _FREQUENCIES if one <= most), max(most, 1))


@dataclass(frozen=True)
class Survey:
    """What all the usual events do on this machine."""

    software: tuple[Counted, ...]
    hardware: tuple[Counted, ...]
    capacity: Capacity
    samplers: tuple[Sampled, ...]  # of cycles and cpu_clock
    read: Cost | None  # of the largest group that counts rightly
    clock_ns: float


def survey(
    more: Sequence[Event] = (),
    open_group: OpenGroup = perf_event.Group,
    open_sampler: OpenSampler = Sampler,
    root: Path = Path("/"),
) -> Survey:
    """Try the generic events, `more` hardware events and the software events; about a second."""
    probe = Probe(open_group)
    hardware = {(one.type, one.config, one.config1): one for one in (*GENERIC, *more)}
    counted = tuple(probe.alone(one) for one in hardware.values())
    software = tuple(probe.alone(one) for one in SOFTWARE_EVENTS)
    working = [one.event for one in counted if one.state == "counts"]
    capacity = probe.largest(working)
    group = [working[place % len(working)] for place in range(capacity.right)]
    if not group:
        group = [one.event for one in software if one.state == "counts"]
    samplers = []
    rate = frequency(root)
    for event in (CYCLES, CPU_CLOCK):
        sampled = sample(event, rate, open_sampler)
        if sampled.samples:
            with contextlib.suppress(OSError):
                # As many as the kernel allows: few interrupts drown in the noise.
                often = max(min(4000, _max_rate(root, 4000) * 7 // 10), 1)
                price = interrupt_cost(event, often, open_sampler)
                sampled = replace(sampled, interrupt_ns=price)
        samplers.append(sampled)
    read = None
    if group:
        with contextlib.suppress(OSError, ValueError):
            read = cost(group, open_group)
    return Survey(software, counted, capacity, tuple(samplers), read, clock_cost())


def sampling_event(
    virtual: bool | None = None,
    open_sampler: OpenSampler = Sampler,
    root: Path = Path("/"),
) -> tuple[str, int, str]:
    """The cheapest event to sample by, as perf spells it, its frequency in Hz, and why it.

    Hardware cycles where interrupts are cheap, the software clock in VMs, where they are dear, and
    where there are no hardware events. The event is "" where the kernel lets us sample nothing.
    """
    if virtual is None:
        from native_map import cpu

        virtual = cpu.detect().virtual
    rate = frequency(root)
    found = [] if virtual else [(CYCLES, "cycles:u", "hardware cycles")]
    why = "counter interrupts are dear in a VM" if virtual else "cycles cannot be sampled here"
    found.append((CPU_CLOCK, "cpu-clock:u", f"the software clock: {why}"))
    error = 0
    for event, spelling, reason in found:
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
        return "cpu-clock:u", rate, "the software clock; perf's file has rights that we have not"
    why = os.strerror(error) if error else "no sample came"
    return "", 0, f"the kernel lets nothing be sampled ({why})"


def _affordable(event: Event, rate: int, open_sampler: OpenSampler) -> int:
    """The highest frequency up to `rate` that costs at most 3 % of a core."""
    price = None
    with contextlib.suppress(OSError):
        price = interrupt_cost(event, min(rate * 4, 4000), open_sampler)
    if price is None or price * rate <= 1e9 * _MOST_COST:
        return rate
    return next((one for one in _FREQUENCIES if price * one <= 1e9 * _MOST_COST), _FREQUENCIES[-1])


def perf_has_rights() -> bool:
    """Whether the file of the perf on PATH carries capabilities of its own (`setcap`)."""
    path = shutil.which("perf")
    try:
        return path is not None and bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False


@dataclass(frozen=True)
class Chosen:
    """What `--counters` counts on this machine: groups that take turns where there are several."""

    uarch: str
    groups: tuple[tuple[Event, ...], ...]
    level_1: bool  # whether it gives all four shares of top-down level 1
    notes: tuple[str, ...]
    tried: tuple[Event, ...] = ()  # hardware events of the sets asked for

    @property
    def events(self) -> tuple[Event, ...]:
        """Every event once."""
        return tuple({one.name: one for group in self.groups for one in group}.values())


def choose_counters(
    wanted: Sequence[str] = ("auto",),
    open_group: OpenGroup = perf_event.Group,
    known: "Table | None" = None,
) -> tuple[list[list[Event]], list[str]]:
    """The groups of events to count on this machine, and notes on what was left out.

    `wanted` names sets or events (see `native_map.pmu.choose`); "auto" is always one group. No
    event is in it that does not count rightly here; it is empty where nothing can be counted.
    `known` replaces our table of this CPU (see `native_map.perf_list`). Takes 0.1 to 0.2 s. Raises
    LotusError for a name that is not understood.
    """
    chosen = choose(wanted, open_group, known=known)
    return [list(group) for group in chosen.groups], list(chosen.notes)


def choose(
    wanted: Sequence[str],
    open_group: OpenGroup = perf_event.Group,
    cpu: "Cpu | None" = None,
    sysfs: Path = Path("/sys"),
    known: "Table | None" = None,
) -> Chosen:
    """What `choose_counters` chooses, and what it means. Raises LotusError."""
    from native_map import cpu as cpus
    from native_map import pmu
    from native_map.errors import Unusable
    from native_map.events import catalogue

    cpu = cpu or cpus.detect()
    known = known or pmu.table(cpu)
    wanted = tuple(wanted) or ("auto",)
    try:
        candidates = _candidates(cpu, known, wanted, sysfs)
        probe = Probe(open_group)
        working = _working(probe, candidates)
        pool = [
            event
            for ours, event in candidates
            if ours.name in working and ours.counters and event.type != SOFTWARE
        ]
        fits = probe.largest(pool).right
        while True:
            choice = pmu.choose(cpu, fits, working, wanted, known)
            notes = list(choice.notes)
            groups = _groups(choice, probe, notes, sysfs)
            # The largest group was of other events: these are tried as well.
            if all(_counts_rightly(probe, group) for group in groups):
                break
            fits -= 1
    except Unusable as error:
        raise LotusError(str(error)) from error
    shares = {"frontend_bound", "backend_bound", "retiring", "bad_speculation"}
    given = catalogue.gives([one.name for group in groups for one in group], known)
    hardware = tuple(event for _, event in candidates if event.type != SOFTWARE)
    return Chosen(cpu.uarch, tuple(groups), shares <= given, tuple(notes), hardware)


def _candidates(
    cpu: "Cpu", known: "Table", wanted: Sequence[str], sysfs: Path
) -> list[tuple["pmu.Event", Event]]:
    """All events that may be chosen, as native_map tells them and as they are opened."""
    from native_map import pmu
    from native_map.errors import Unusable

    found: dict[pmu.Event, Event] = {}
    for word in wanted:
        name = word
        if word == "auto":
            name = "topdown" if "topdown" in known.sets else "generic"
        events = [one for form in known.sets.get(name, ()) for one in form.events]
        for one in (*pmu.choose(cpu, _MOST_AT_ONCE, None, (word,), known).events, *events):
            with contextlib.suppress(Unusable):  # this machine has no such unit
                found[one] = _as_opened(one, sysfs)
    # Cycles and instructions first: they are in every group.
    return sorted(found.items(), key=lambda pair: pair[0].name not in ("cycles", "instructions"))


def _working(probe: Probe, candidates: Sequence[tuple["pmu.Event", Event]]) -> set[str]:
    """Names of the events that count; of one name all must."""
    slots = next((event for ours, event in candidates if ours.name == "slots"), None)
    working: set[str] = set()
    broken: set[str] = set()
    for ours, event in candidates:
        if not ours.counters and event.type != SOFTWARE and slots not in (None, event):
            # A share of Intel's perf metrics opens only behind the slots register.
            probe.behind(slots, event)
        (working if probe.works(event) else broken).add(ours.name)
    return working - broken


def _as_opened(ours: "pmu.Event", sysfs: Path) -> Event:
    """Raises Unusable where this machine has no such unit."""
    from native_map import pmu

    return Event(ours.name, pmu.resolve(ours, sysfs), ours.config, ours.config1, ours.flags)


def _groups(
    choice: "pmu.Choice", probe: Probe, notes: list[str], sysfs: Path
) -> list[tuple[Event, ...]]:
    """The groups as they are opened, without what the kernel refuses."""
    refused: dict[str, str] = {}
    groups = []
    for chosen in choice.groups:
        events = []
        for one in chosen:
            event = _as_opened(one, sysfs)
            counted = probe.alone(event)
            if event.type == SOFTWARE and counted.count is None:
                refused[one.name] = os.strerror(counted.error)
            else:
                events.append(event)
        if events:
            groups.append(tuple(events))
    notes += [f"{name} is refused by the kernel ({why})" for name, why in refused.items()]
    return groups


def _counts_rightly(probe: Probe, events: Sequence[Event]) -> bool:
    if all(one.type == SOFTWARE for one in events):
        return True
    try:
        return not probe.wrong(events)[0]
    except OSError:
        return False
