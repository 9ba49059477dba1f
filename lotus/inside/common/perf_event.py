"""perf_event_open(2) through ctypes: groups of counters of one thread, read together.

Standard library only. Events are given as text, because this module knows no CPU:
``name|type|config|config1|flags`` joined by commas, with numbers in any base of Python's and flags
``u`` (user space), ``k`` (kernel) or ``uk``. Groups are joined by semicolons; they take turns if
they do not fit into the counters together.
"""

from __future__ import annotations

import fcntl
import os
import platform
import struct
import sys

from .guard import quiet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, NamedTuple

    class Event(NamedTuple):
        """An event to count: perf_event_attr's type and config, and the modes."""

        name: str
        type: int
        config: int
        config1: int = 0
        flags: str = "u"

else:
    import collections

    Event = collections.namedtuple(
        "Event", "name type config config1 flags", defaults=(0, "u"), module=__name__
    )

HARDWARE, SOFTWARE, RAW = 0, 1, 4
# <linux/perf_event.h>, PERF_ATTR_SIZE_VER0: type, size, config, sample_period, sample_type,
# read_format, flag bits, wakeup_events, bp_type, config1
_ATTR = struct.Struct("<IIQQQQQIIQ")
_PINNED, _NO_USER, _NO_KERNEL, _NO_HYPERVISOR = 1 << 2, 1 << 4, 1 << 5, 1 << 6
_ENABLED, _RUNNING, _GROUP = 1, 2, 8  # read_format
_CLOEXEC = 8
_GET_ID = 0x80082407  # PERF_EVENT_IOC_ID
_ENABLE, _DISABLE, _WHOLE_GROUP = 0x2400, 0x2401, 1  # PERF_EVENT_IOC_..., PERF_IOC_FLAG_GROUP
_CALLS = {"x86_64": 298, "i686": 336, "ppc64le": 319, "s390x": 331}  # 241 elsewhere
HEADER = 3  # words of a group's reading before its values: their number, enabled ns, running ns


def parse(text: str) -> list[Event]:
    """Return the events of a text. Raises ValueError."""
    events = []
    for part in text.split(","):
        name, kind, config, config1, flags = part.split("|")
        if not name or not set(flags) <= set("uk") or not flags:
            raise ValueError(part)
        events.append(Event(name, int(kind, 0), int(config, 0), int(config1, 0), flags))
    return events


def parse_groups(text: str) -> list[list[Event]]:
    """Return the groups of a text. Raises ValueError."""
    return [parse(part) for part in text.split(";")]


def spell_groups(groups: Iterable[Iterable[Event]]) -> str:
    """Return the text for `parse_groups`."""
    return ";".join(map(spell, groups))


def spell(events: Iterable[Event]) -> str:
    """Return the text for `parse`."""
    return ",".join(
        f"{event.name}|{event.type}|{event.config:#x}|{event.config1:#x}|{event.flags}"
        for event in events
    )


_syscall: Any = None


def open_event(
    event: Event,
    group_fd: int = -1,
    pid: int = 0,
    pinned: bool = False,
) -> int:
    """Open a counter that runs at once; returns its descriptor. Raises OSError.

    `pid` 0 is the calling thread. A pinned group has priority over all others; a reading of it is
    empty if it could not be counted completely.
    """
    import ctypes

    global _syscall
    if _syscall is None:
        _syscall = ctypes.CDLL(None, use_errno=True).syscall
        _syscall.restype = ctypes.c_long
    bits = _NO_HYPERVISOR
    bits |= 0 if "u" in event.flags else _NO_USER
    bits |= 0 if "k" in event.flags else _NO_KERNEL
    bits |= _PINNED if pinned and group_fd < 0 else 0
    layout = _ENABLED | _RUNNING | _GROUP
    attr = ctypes.create_string_buffer(
        _ATTR.pack(event.type, _ATTR.size, event.config, 0, 0, layout, bits, 0, 0, event.config1)
    )
    number = ctypes.c_long(_CALLS.get(platform.machine(), 241))
    theirs = ctypes.get_errno()  # the program's errno
    fd = _syscall(
        number,
        attr,
        ctypes.c_int(pid),
        ctypes.c_int(-1),  # any CPU
        ctypes.c_int(group_fd),
        ctypes.c_ulong(_CLOEXEC),
    )
    code = ctypes.set_errno(theirs)
    if fd < 0:
        raise OSError(code, os.strerror(code), event.name)
    return int(fd)


class EventGroup:
    """Counters of one thread that are counted and read together."""

    def __init__(
        self, events: Sequence[Event], pid: int = 0, pinned: bool = False, lowest: int = 0
    ) -> None:
        """Open the counters. Raises OSError if one fails. Descriptors are at least `lowest`."""
        self.events = list(events)
        self.size = 8 * (HEADER + len(self.events))
        self._fds: list[tuple[int, int]] = []  # with the kernel's number of the counter
        try:
            for event in self.events:
                leader = self._fds[0][0] if self._fds else -1
                fd = open_event(event, leader, pid, pinned=pinned)
                try:
                    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest) if lowest else fd
                finally:
                    if lowest:
                        os.close(fd)
                self._fds.append((high, _number(high)))
            self.fd = self._fds[0][0]
        except BaseException:
            self.close()
            raise

    def is_ours(self) -> bool:
        """Return whether the descriptors still are these counters; the program may close them."""
        return bool(self._fds) and all(_is(fd, number) for fd, number in self._fds)

    def read(self) -> bytes:
        """Return the number of events, enabled and running time (ns) and counts, as 64-bit words.

        It is shorter if a pinned group could not be counted. Raises OSError.
        """
        return os.read(self.fd, self.size)

    def unpack(self, reading: bytes) -> tuple[int, int, list[int]]:
        """Return (enabled ns, running ns, counts). Raises ValueError if the reading is short."""
        if len(reading) != self.size:
            raise ValueError("the group could not be counted")
        words = struct.unpack(f"<{len(reading) // 8}Q", reading)
        return words[1], words[2], list(words[HEADER:])

    def pause(self) -> None:
        """Stop counting and free the counters until `resume`. Raises OSError."""
        fcntl.ioctl(self.fd, _DISABLE, _WHOLE_GROUP)

    def resume(self) -> None:
        """Continue counting. Raises OSError."""
        fcntl.ioctl(self.fd, _ENABLE, _WHOLE_GROUP)

    def close(self) -> None:
        """Close the descriptors that still are these counters."""
        fds, self._fds = self._fds, []
        for fd, number in fds:
            if _is(fd, number):
                with quiet(OSError):
                    os.close(fd)


def _number(fd: int) -> int:
    """Return the kernel's id of a counter. Raises OSError if the descriptor is not a counter."""
    return int.from_bytes(fcntl.ioctl(fd, _GET_ID, b"\0" * 8), sys.byteorder)


def _is(fd: int, number: int) -> bool:
    with quiet(OSError):
        return _number(fd) == number
    return False
