"""Emulates the program's training step between two batches, with the same work and duration.

The amount of work is fixed, not its time: workers that use the cores slow it down, as they slow
down the program's step. Work on several threads is done by torch's own threads, which synchronize
every few dozen microseconds. If one of them has no core, all others wait for it. With workers on
all cores, a step of a small network takes more than five times as long; the same work without that
synchronization would take twice as long.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from dataclasses import dataclass

from ..loading.batch_contents import leaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Kernels of torch that release the GIL and that MKL does not parallelize. In a forked process,
# sigmoid of torch 2.2 takes 30 times as long.
_ALONE, _SHARED = "digamma", "sigmoid"
_ELEMENTS = 1 << 13  # too few for several threads; 0.1 ms of digamma
_PER_THREAD = 3 << 15  # several threads from 1 << 15 on; 30 us of sigmoid
_ROUNDS, _CALLS = 7, 40


@dataclass(frozen=True)
class Step:
    """A training step of the program: its time, its CPU time, and torch's number of threads."""

    seconds: float
    cpu_seconds: float
    threads: int = 1

    def shared_s(self) -> float:
        """Return the seconds in which all threads work, if otherwise one does."""
        if self.threads < 2:
            return 0.0
        others_s = max(self.cpu_seconds - self.seconds, 0.0)
        return min(others_s / (self.threads - 1), self.seconds)

    def alone_s(self) -> float:
        """Return the seconds in which one thread works."""
        return min(self.cpu_seconds, self.seconds) - self.shared_s()


class StepEmulator:
    """Does the work of a step. Create it while nothing else runs, as it measures its speed."""

    def __init__(self, step: Step, own_pins: bool, own_shares: bool = False) -> None:
        """`own_pins`, `own_shares`: the program's own batches are pinned, are in shared memory."""
        self._own_pins, self._own_shares = own_pins, own_shares
        self._pid = os.getpid()
        alone_s, shared_s = step.alone_s(), step.shared_s()
        self._asleep_s = max(step.seconds - alone_s - shared_s, 0.0)  # the accelerator works
        self._elements = _PER_THREAD * step.threads
        self._calls = self._shared_calls = self._instead = 0
        if step.cpu_seconds > 0:
            cost_s = _cost(_ALONE, _ELEMENTS, time.thread_time)
            self._calls, self._instead = round(alone_s / cost_s), round(shared_s / cost_s)
        if shared_s > 0:
            cost_s = _cost(_SHARED, self._elements, time.perf_counter)
            self._shared_calls = round(shared_s / cost_s)
        self._copy_s: float | None = None

    def run(self, batch: Any) -> None:
        """Run a step on a batch, and copy it to the accelerator if the program uses one."""
        device = device_in_use()
        rest_s = self._asleep_s
        tensors = [tensor for tensor in leaves(batch) if _is_cpu_tensor(tensor)]
        if device is not None:
            if self._copy_s is None:
                self._copy_s = _copy_time(tensors, device, self._own_pins)
            rest_s = max(rest_s - self._copy_s, 0.0)
            _copy(tensors, device)
        elif not self._own_shares:
            _touch(tensors)
        if self._pid == os.getpid():
            _call(_SHARED, self._elements, self._shared_calls)
            _call(_ALONE, _ELEMENTS, self._calls)
        else:  # forked: no threads of torch, and no workers that compete for cores
            _call(_ALONE, _ELEMENTS, self._calls + self._instead)
        if rest_s > 0:
            time.sleep(rest_s)


def _touch(tensors: list[Any]) -> None:
    """Read a byte of each shared page, for the page fault of its first reader.

    In a VM a fault takes up to some microseconds. A step that was observed without workers does not
    include them.
    """
    torch: Any = sys.modules["torch"]
    for tensor in tensors:
        if tensor.layout == torch.strided and tensor.is_shared():
            whole = torch.empty(0, dtype=torch.uint8, device="cpu").set_(tensor.untyped_storage())
            whole[:: mmap.PAGESIZE].sum()


def _call(kernel: str, elements: int, count: int) -> None:
    if count:
        _work(kernel, _values(elements), count)


def _values(elements: int) -> Any:
    torch: Any = sys.modules["torch"]
    return torch.ones(elements, dtype=torch.float32, device="cpu")


def _work(kernel: str, values: Any, count: int) -> None:
    torch: Any = sys.modules["torch"]
    function, out = getattr(torch, kernel), torch.empty_like(values)
    for _ in range(count):
        function(values, out=out)


def _cost(kernel: str, elements: int, clock: Callable[[], float]) -> float:
    """Return the seconds of a call: the minimum of some rounds, as noise only adds time."""
    values, best = _values(elements), float("inf")
    for _ in range(_ROUNDS):
        before = clock()
        _work(kernel, values, _CALLS)
        best = min(best, (clock() - before) / _CALLS)
    return best


def device_in_use() -> Any:
    """Return the accelerator that the program uses, or None; does not initialize one."""
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
    held = [tensor.to(device, non_blocking=True) for tensor in tensors]
    getattr(sys.modules["torch"], device.type).synchronize(device)
    del held


def _copy_time(tensors: list[Any], device: Any, pinned: bool) -> float:
    """Return the seconds of a copy with the program's own setting: the second of two."""
    if pinned:
        tensors = [tensor.pin_memory() for tensor in tensors]
    took = 0.0
    for _ in range(2):
        before = time.perf_counter()
        _copy(tensors, device)
        took = time.perf_counter() - before
    return took
