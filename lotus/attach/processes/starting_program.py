"""Waits for a program that was started a moment ago to load torch."""

import time
from collections.abc import Mapping

from lotus.attach.processes import process_discovery
from lotus.attach.processes.process_discovery import ProcessFacts, Program, TorchNotLoadedError
from lotus.common.terminal.stderr import say
from lotus.inside.common.process_stat import TICK_NS

_YOUNG_S = 20.0  # age up to which a program may still be importing torch
_LOOK_S = 0.2


def programs_of(pid: int, processes: Mapping[int, ProcessFacts]) -> list[Program]:
    """Return what `process_discovery.programs_of` does, when a young program has loaded torch.

    Raises LotusError, one line with the next step.
    """
    is_announced = False
    while True:
        try:
            return process_discovery.programs_of(pid, processes)
        except TorchNotLoadedError:
            if _age_s(processes[pid]) > _YOUNG_S:
                raise
        if not is_announced:
            is_announced = True
            say(f"lotus: process {pid} has just started; lotus waits until it has loaded torch")
        time.sleep(_LOOK_S)
        processes = process_discovery.read_processes()


def _age_s(facts: ProcessFacts) -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) - facts.start_ticks * TICK_NS / 1e9
