"""The recorders beside the programs that `lotus attach` watches: py-spy's and perf's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lotus.attach.stacks.stack_recorder import StackRecorder

if TYPE_CHECKING:
    from lotus.attach.threads.perf_recorder import PerfRecorder


@dataclass
class AttachRecorders:
    """A py-spy for each program (none where stacks are refused), and perf where asked for."""

    stacks: list[StackRecorder] = field(default_factory=list)
    functions: PerfRecorder | None = None

    def watch_stacks(self) -> bool:
        """Look at all that sample stacks; returns whether one still does."""
        sampling = [recorder.watch() for recorder in self.stacks]  # each of them is looked at
        return any(sampling)

    def watch_functions(self, pids: Sequence[int], mains: Sequence[int]) -> None:
        """Start perf again where a process ended while it started; `pids` are alive."""
        if self.functions is not None:
            self.functions.watch(pids, mains)

    def stop(self) -> None:
        """End the sampling."""
        for recorder in self.stacks:
            recorder.stop()
        if self.functions is not None:
            self.functions.stop()

    def kill(self) -> None:
        """End them without what they still hold."""
        for recorder in self.stacks:
            recorder.kill()
        if self.functions is not None:
            self.functions.kill()
