"""CPU time of a loop: of the workers, and of the main process's helper threads."""

import pandas as pd

from lotus.analysis.common.columns import float_column, int_column, total
from lotus.analysis.common.scope import Scope

# How long threads that helped an operation of torch wait for more work, each on its core, by
# libgomp's default; in a process that makes its batches itself, they do so while it makes them.
SPIN_NS = 6e6


def workers_ns(scope: Scope) -> float:
    """Return the CPU time of workers, with their helper threads, in the making of batches, ns."""
    batches = scope.batches
    return total(float_column(batches, "process_cpu_ns")[int_column(batches, "worker") >= 0])


def helpers_ns(waits: pd.DataFrame, part: str) -> float:
    """Return the CPU time of a main process's other threads in each "step" or "wait", ns."""
    of_process, of_thread = (
        float_column(waits, f"{part}_{name}cpu_ns") for name in ("process_", "")
    )
    return max(total(of_process - of_thread), 0.0)


def idle_helpers_ns(scope: Scope) -> float:
    """Return that of torch's threads in `next`, where they wait busily for the next step, ns.

    0.0 where other threads may have used it, as those that pin memory or that the program started.
    """
    of_torch = max(int_column(scope.epochs, "torch_threads"), default=-1)
    of_program = max(int_column(scope.epochs, "threads"), default=-1)
    if of_torch < 2 or of_program or scope.settings.get("pin_memory") or not scope.num_workers:
        return 0.0
    return helpers_ns(scope.waits, "wait")


def busy_waiting_ns(epochs: pd.DataFrame) -> float:
    """Return how long torch's helper threads, together, wait busily after an operation, ns.

    One helper thread is assumed where their number is not known.
    """
    threads = int(max(int_column(epochs, "torch_threads"), default=-1))
    return max(threads - 1, 1) * SPIN_NS
