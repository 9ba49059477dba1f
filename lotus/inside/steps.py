"""What stands in for the program's step between two batches: as much work, and as long.

The work is fixed, not its time: workers that take its cores make it longer, as they would the
program's step. It is one kernel of torch without Python's lock, on as many threads as the step
needs, each with a piece too small for torch to share it out among threads of its own; not one of
those that MKL has, which it shares out by itself.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass

from .contents import leaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_ELEMENTS = 1 << 13  # torch shares out from 32,768 on
_ROUNDS, _CALLS = 7, 40


@dataclass(frozen=True)
class Step:
    """A step of the program: its seconds, its CPU seconds, and on how many threads these ran."""

    seconds: float
    cpu_seconds: float
    threads: int = 1

    def threads_used(self) -> int:
        """No more than its CPU time needs: threads that a library has are not always at work."""
        if self.seconds <= 0 or self.cpu_seconds <= 0:
            return 1
        needed = -int(-self.cpu_seconds // self.seconds)
        return max(1, min(self.threads, needed))


class StandIn:
    """Does a step's work. Make one while nothing else runs: it measures how fast it works."""

    def __init__(self, step: Step, own_pins: bool) -> None:
        self._own_pins = own_pins
        self._cost_s = _cost() if step.cpu_seconds > 0 else 1.0
        self._count = step.threads_used()
        self._calls = round(step.cpu_seconds / self._count / self._cost_s)
        alone_s = self._calls * self._cost_s
        self._asleep_s = max(step.seconds - alone_s, 0.0)  # an accelerator works meanwhile
        self._copy_s: float | None = None

    def begin(self) -> Crew:
        """Its threads, to be ended."""
        return Crew(self._count if self._calls else 1, self._calls)

    def run(self, crew: Crew, batch: Any) -> None:
        """One step on one batch, which goes to the accelerator where the program uses one."""
        device = device_in_use()
        rest_s = self._asleep_s
        if device is not None:
            tensors = [one for one in leaves(batch) if _is_cpu_tensor(one)]
            if self._copy_s is None:
                self._copy_s = _copy_time(tensors, device, self._own_pins)
            rest_s = max(rest_s - self._copy_s, 0.0)
            _copy(tensors, device)
        crew.work()
        if rest_s > 0:
            time.sleep(rest_s)


class Crew:
    """Threads that do a number of calls each when told to, the calling one among them."""

    def __init__(self, count: int, calls: int) -> None:
        self._calls = calls
        self._end = False
        self._begin = threading.Barrier(count)
        self._done = threading.Barrier(count)
        self._threads = [
            threading.Thread(target=self._run, name="lotus-step", daemon=True)
            for _ in range(count - 1)
        ]
        self._piece = _piece()
        for one in self._threads:
            one.start()

    def work(self) -> None:
        self._begin.wait()
        _calls(self._piece, self._calls)
        self._done.wait()

    def _run(self) -> None:
        piece = _piece()
        while True:
            try:
                self._begin.wait()
                _calls(piece, self._calls)
                self._done.wait()
            except threading.BrokenBarrierError:
                return

    def end(self) -> None:
        self._begin.abort()
        self._done.abort()
        for one in self._threads:
            one.join()


def _piece() -> tuple[Any, Any]:
    torch: Any = sys.modules["torch"]
    values = torch.arange(1, _ELEMENTS + 1, dtype=torch.float32, device="cpu")
    return values, torch.empty_like(values)


def _calls(piece: tuple[Any, Any], count: int) -> None:
    values, out = piece
    digamma = sys.modules["torch"].digamma
    for _ in range(count):
        digamma(values, out=out)


def _cost() -> float:
    """CPU seconds of a call: the least of some rounds, as others only make it more."""
    piece = _piece()
    best = float("inf")
    for _ in range(_ROUNDS):
        before = time.thread_time()
        _calls(piece, _CALLS)
        best = min(best, (time.thread_time() - before) / _CALLS)
    return best


def device_in_use() -> Any:
    """The accelerator that the program uses; None where it uses none. Wakes none up."""
    torch: Any = sys.modules["torch"]
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return None if cuda._is_in_bad_fork() else torch.device("cuda", cuda.current_device())
    for name in ("xpu", "npu"):
        module = getattr(torch, name, None)
        if module is not None and getattr(module, "is_initialized", bool)():
            return torch.device(name, module.current_device())
    return None


def _is_cpu_tensor(value: Any) -> bool:
    return isinstance(value, sys.modules["torch"].Tensor) and value.device.type == "cpu"


def _copy(tensors: list[Any], device: Any) -> None:
    held = [one.to(device, non_blocking=True) for one in tensors]
    getattr(sys.modules["torch"], device.type).synchronize(device)
    del held


def _copy_time(tensors: list[Any], device: Any, pinned: bool) -> float:
    """How much of the program's step was the copy, with its own setting: the second of two."""
    if pinned:
        tensors = [one.pin_memory() for one in tensors]
    took = 0.0
    for _ in range(2):
        before = time.perf_counter()
        _copy(tensors, device)
        took = time.perf_counter() - before
    return took
