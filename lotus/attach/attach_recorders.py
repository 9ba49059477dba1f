"""The recorders of `lotus attach`: py-spy for each program, and perf."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lotus.attach.stacks.stack_recorder import StackRecorder

if TYPE_CHECKING:
    from lotus.attach.threads.perf_recorder import PerfRecorder


@dataclass
class AttachRecorders:
    """py-spy for each program, unless stacks are refused, and perf if it was requested."""

    stacks: list[StackRecorder] = field(default_factory=list)
    functions: PerfRecorder | None = None

    def watch_stacks(self) -> bool:
        """Check all recorders of stacks; return whether one still samples."""
        sampling = [recorder.watch() for recorder in self.stacks]  # a list, as each must be checked
        return any(sampling)

    def watch_functions(self, pids: Sequence[int], mains: Sequence[int]) -> None:
        """Start perf again if a process ended while perf started; `pids` are alive."""
        if self.functions is not None:
            self.functions.watch(pids, mains)

    def stop(self) -> None:
        """End the sampling."""
        for recorder in self.stacks:
            recorder.stop()
        if self.functions is not None:
            self.functions.stop()

    def kill(self) -> None:
        """End all recorders and discard what they still hold."""
        for recorder in self.stacks:
            recorder.kill()
        if self.functions is not None:
            self.functions.kill()
