"""Times an accelerator between the batches of a loop, by events on the stream that the loop uses.

This starts only when the program itself uses the device: nothing here initialises a device, creates
a context or waits. One event is recorded when a batch is requested and one when it is returned.
Both are in the device's own queue, so their distance is time of the device: between request and
return it had nothing to do on this stream, and until the next request it was busy at most that
long. Events that the device has reached are read later, without waiting.
"""

from __future__ import annotations

import math
import threading
from collections import deque

from ..common.guard import first_line, of_the_program
from .log.log_format import DEVICE, UNMEASURED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class Recorder(Protocol):
        """The parts of a recorder that the times need."""

        worker: int

        def event(self, event: dict[str, object]) -> None: ...
        def add_later(self, kind: int, time: int, *fields: int) -> None: ...

    Mark = tuple[Any, Any]  # an event, and the stream on which it was recorded


_MOST = 64  # steps that the device has not reached yet, and whose events are kept
_A_CALL = 4  # finished steps read per call of `next`
_LONGEST_MS = 1e12


class DeviceStep:
    """The events of one step, and of the `next` before it."""

    __slots__ = ("following_begin", "next_begin", "next_end", "start_ns")

    def __init__(self, next_begin: Mark | None) -> None:
        self.next_begin = next_begin
        self.next_end: Mark | None = None
        self.following_begin: Mark | None = None  # of the `next` after the step
        self.start_ns = 0  # of the `next` that handed the batch over


class DeviceTimes:
    """The steps of this process on its device.

    `used` is a cheap test of whether the program has initialised the device. It is None if torch
    was built without one, and after an error of the device.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.used: Callable[[], bool] | None = None
        self._recorder = recorder
        self._module: Any = None
        self._has_context: Callable[[int], bool] = bool
        self._devices: set[int] = set()  # on which the program has a context
        self._pending: deque[DeviceStep] = deque()
        self._left: list[deque[DeviceStep]] = []  # of the parent: see `forked`
        self._dropped = 0

    def find(self, torch: Any) -> None:
        """Prepare for this torch build's device: CUDA's, or ROCm's under the same name."""
        version, module = getattr(torch, "version", None), getattr(torch, "cuda", None)
        built = getattr(version, "cuda", None) or getattr(version, "hip", None)
        # If we cannot know whether a context exists, an event could create one.
        has_context = getattr(getattr(torch, "_C", None), "_cuda_hasPrimaryContext", None)
        used = getattr(module, "is_initialized", None)
        if built and has_context is not None and used is not None and self._module is None:
            self._module, self._has_context, self.used = module, has_context, used

    def forked(self) -> None:
        """Reset in a forked child, which must not even free the parent's events."""
        self._left.append(self._pending)
        self._pending, self._dropped = deque(), 0
        self._devices = set()

    def begin_next(self, iteration: Any) -> None:
        """Note that the loop requests a batch, which ends the step before it."""
        before: DeviceStep | None = iteration.device_step
        iteration.device_step = None
        mark = self._mark()
        if mark is None:
            return
        iteration.device_step = DeviceStep(mark)
        if before is not None and before.next_end is not None:
            before.following_begin = mark
            if len(self._pending) < _MOST:
                self._pending.append(before)
            else:
                self._dropped += 1
        self.read(_A_CALL)

    def end_next(self, iteration: Any, start_ns: int) -> None:
        """Note that the loop gets a batch, from the `next` that began at `start_ns`."""
        step: DeviceStep | None = iteration.device_step
        if step is not None:
            step.start_ns = start_ns
            step.next_end = self._mark()

    def read(self, most: int = _MOST) -> None:
        """Record the oldest steps that the device has finished, without waiting."""
        pending = self._pending
        if self.used is None:
            return
        try:
            if self._may_not():
                return
            while pending and most > 0 and pending[0].following_begin[0].query():  # type: ignore[index]
                step = pending.popleft()
                idle = _between(step.next_begin, step.next_end)
                busy = _between(step.next_end, step.following_begin)
                if (idle, busy) != (UNMEASURED, UNMEASURED):
                    start = step.start_ns
                    self._recorder.add_later(DEVICE, start, start, idle, busy)
                most -= 1
        except Exception as error:
            self._stop(error)

    def finish(self) -> None:
        """Record the steps that the device has finished, and note those that it has not."""
        if self._pending:
            self.read()
        count = self._dropped + len(self._pending)
        self._dropped = 0
        self._pending.clear()
        if count:
            of = "a step" if count == 1 else f"{count} steps"
            self._note(f"how long {of} took on the device is not known: it had not finished yet")

    def _may_not(self) -> bool:
        """Return whether events must not be recorded or read now.

        They would invalidate a CUDA graph that is being captured. Another thread may capture one
        while the main thread does not, so only the main thread uses events.
        """
        main = threading.main_thread().ident == threading.get_ident()
        return not main or bool(self._module.is_current_stream_capturing())

    def _mark(self) -> Mark | None:
        """Record an event on the current stream of the device in use; None if there is none."""
        if self.used is None or self._recorder.worker >= 0:
            return None
        try:
            if self._may_not():
                return None
            device = self._device()
            if device is None:
                return None
            stream = self._module.current_stream(device)
            event = self._module.Event(enable_timing=True)
            event.record(stream)
        except Exception as error:
            self._stop(error)
            return None
        return event, stream

    def _device(self) -> int | None:
        """Return the current device; if the program has not used it, the only other one."""
        device: int = self._module.current_device()
        if device in self._devices:
            return device
        if not self._has_context(device):
            others = [
                device for device in range(self._module.device_count()) if self._has_context(device)
            ]
            return others[0] if len(others) == 1 else None
        self._devices.add(device)
        return device

    def _stop(self, error: Exception) -> None:
        """Stop timing, but not recording: the program will see the error of its device itself."""
        if of_the_program(error):
            raise error
        self.used = None
        self._pending.clear()
        self._note(f"the device is not timed any more: {first_line(error)}")

    def _note(self, text: str) -> None:
        self._recorder.event({"event": "note", "text": text})


def _between(first: Mark | None, last: Mark | None) -> int:
    """Return the nanoseconds of the device between two finished events, or UNMEASURED.

    Events of two streams have no order.
    """
    if first is None or last is None or first[1] != last[1]:
        return UNMEASURED
    elapsed = float(first[0].elapsed_time(last[0]))  # milliseconds
    sane = math.isfinite(elapsed) and 0 <= elapsed < _LONGEST_MS
    return round(elapsed * 1e6) if sane else UNMEASURED
