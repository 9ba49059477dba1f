"""Says which workers a signal ended, what that usually means, and what the run knows of it."""

import signal
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column
from lotus.analysis.common.scope import RunLike, Scope, table
from lotus.analysis.machine.memory_readings import memory_readings
from lotus.analysis.verdict.advice.resources import resources
from lotus.common.text.formatting import plural, share, signal_name, size

_MOST_NAMED = 4  # workers
_EMPTY = 0.5  # of /dev/shm in use: less is not near its end, though it is read once a second only
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)


def killed_worker_remarks(run: RunLike, scope: Scope) -> list[str]:
    """Return a sentence or two for each signal that ended workers of a loader; [] if none did."""
    killed = table(run, "killed_workers")
    if not len(killed):
        return []
    keys = pd.MultiIndex.from_arrays([int_column(killed, "rank"), int_column(killed, "worker_pid")])
    mine = [int_column(scope.workers, name) for name in ("rank", "pid")]
    killed = killed[keys.isin(pd.MultiIndex.from_arrays(mine))]
    sentences = []
    for number in sorted(set(int_column(killed, "signal").tolist())):
        rows = killed[int_column(killed, "signal") == number]
        why = _why(number, rows, run.manifest, scope)
        sentences.append(f"{_who(rows)} ended by {signal_name(number)}. {why}")
    return sentences


def _who(killed: pd.DataFrame) -> str:
    numbers = [str(worker) for worker in sorted(int_column(killed, "worker"))]
    if len(numbers) == 1:
        return f"Worker {numbers[0]} was"
    if len(numbers) > _MOST_NAMED:
        return f"{plural(len(numbers), 'worker')} were"
    return f"Workers {', '.join(numbers[:-1])} and {numbers[-1]} were"


def _why(number: int, killed: pd.DataFrame, manifest: Mapping[str, Any], scope: Scope) -> str:
    if number == signal.SIGKILL:
        return _lack_of_memory(killed, manifest, scope)
    if number == signal.SIGBUS:
        filled = resources(scope).shm_share
        words = "Usually /dev/shm, through which batches are sent, is full"
        if np.isfinite(filled):
            words += f"; at most {share(filled)} of its {size(scope.shm_bytes)} were seen in use"
        if filled < _EMPTY:
            return f"{words}, so a file that was cut while it was mapped may be the reason."
        return (
            f"{words}. Enlarge it (docker run --shm-size), or use fewer workers or a smaller "
            "prefetch_factor."
        )
    if number in _CRASHES:
        return (
            "Usually that is an error in the native code of a library: set PYTHONFAULTHANDLER=1 "
            "to see the line that called it."
        )
    return "The program itself, a user or a job scheduler sends that."


def _lack_of_memory(killed: pd.DataFrame, manifest: Mapping[str, Any], scope: Scope) -> str:
    kills = manifest.get("memory_kills")
    words, advice = "Usually the kernel does that when memory is used up", ""
    if kills == 0:
        words += ", but it counted none of this cgroup, so another program may have done it"
    elif kills:
        words += f", and it killed {plural(kills, 'process')} of this cgroup for that"
    if kills != 0:
        advice = " Use fewer workers, or less data in each of them."
    return f"{words}.{_memory(killed, scope)}{advice}"


def _memory(killed: pd.DataFrame, scope: Scope) -> str:
    """Return a sentence on the memory of these workers and of the machine; "" if it is unknown."""
    readings = memory_readings(scope)
    own = readings[readings["pid"].isin(killed["worker_pid"])]["pss"]
    left = float_column(scope.machine, "available_bytes")
    left = left[left >= 0]
    parts = []
    if len(own):
        parts.append(f"{'the worker' if len(killed) == 1 else 'one'} had {size(own.max())}")
    if left.size:
        parts.append(f"at least {size(left.min())} of memory were free")
    text = ", and ".join(parts)
    return f" As far as it was read, {text}." if text else ""
