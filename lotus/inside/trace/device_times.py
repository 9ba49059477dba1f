"""Times an accelerator between the batches of a loop, by events on the stream that the loop uses.

Only once the program itself uses the device: nothing here initialises one, creates a context or
waits for it. An event is recorded when a batch is asked for and one when it is handed over. Both
lie in the device's own queue, so that their distance is time of the device: from the asking to the
handing over it had nothing to do on this stream, and from there to the next asking it was busy at
most. Events that the device has reached are read later, without waiting.
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
        """What of a recorder the times need."""

        worker: int

        def event(self, event: dict[str, object]) -> None: ...
        def add_later(self, kind: int, time: int, *fields: int) -> None: ...

    Mark = tuple[Any, Any]  # an event, and the stream on which it was recorded


_MOST = 64  # steps that the device has not reached yet, and whose events are kept
_A_CALL = 4  # finished steps that one call of `next` reads
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

    `used` tells cheaply whether the program has initialised the device. It is None where torch is
    not built for one, and after an error of the device.
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
        """Prepare for the device of this build of torch: CUDA's, or ROCm's under the same name."""
        version, module = getattr(torch, "version", None), getattr(torch, "cuda", None)
        built = getattr(version, "cuda", None) or getattr(version, "hip", None)
        # Where we cannot know whether a context exists, an event could create one.
        has_context = getattr(getattr(torch, "_C", None), "_cuda_hasPrimaryContext", None)
        used = getattr(module, "is_initialized", None)
        if built and has_context is not None and used is not None and self._module is None:
            self._module, self._has_context, self.used = module, has_context, used

    def forked(self) -> None:
        """Begin anew in a forked child, in which the parent's events must not even be freed."""
        self._left.append(self._pending)
        self._pending, self._dropped = deque(), 0
        self._devices = set()

    def begin_next(self, iteration: Any) -> None:
        """Note that the loop asks for a batch: the step before it ends."""
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
        """Note that the loop gets a batch, by the `next` that began at `start_ns`."""
        step: DeviceStep | None = iteration.device_step
        if step is not None:
            step.start_ns = start_ns
            step.next_end = self._mark()

    def read(self, most: int = _MOST) -> None:
        """Record the oldest steps that the device has finished; wait for none."""
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
        """Record what the device has finished by now, and say what it has not."""
        if self._pending:
            self.read()
        count = self._dropped + len(self._pending)
        self._dropped = 0
        self._pending.clear()
        if count:
            of = "a step" if count == 1 else f"{count} steps"
            self._note(f"how long {of} took on the device is not known: it had not finished yet")

    def _may_not(self) -> bool:
        """Whether no event may be recorded or read now.

        While a CUDA graph is captured, that would make it invalid. Other threads may capture one
        when the main thread does not: so only the main thread touches events.
        """
        main = threading.main_thread().ident == threading.get_ident()
        return not main or bool(self._module.is_current_stream_capturing())

    def _mark(self) -> Mark | None:
        """Record an event on the current stream of the device in use; None where there is none."""
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
        """The current device; or the only other one, where the program has not used that one."""
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
        """End the timing, not the recording: an error of the device is the program's to see."""
        if of_the_program(error):
            raise error
        self.used = None
        self._pending.clear()
        self._note(f"the device is not timed any more: {first_line(error)}")

    def _note(self, text: str) -> None:
        self._recorder.event({"event": "note", "text": text})


def _between(first: Mark | None, last: Mark | None) -> int:
    """Nanoseconds of the device between two finished events, or UNMEASURED.

    Events of two streams have no order.
    """
    if first is None or last is None or first[1] != last[1]:
        return UNMEASURED
    elapsed = float(first[0].elapsed_time(last[0]))  # milliseconds
    sane = math.isfinite(elapsed) and 0 <= elapsed < _LONGEST_MS
    return round(elapsed * 1e6) if sane else UNMEASURED
