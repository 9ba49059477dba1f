"""The default space of a search, from what was observed of the program."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Collection

from lotus.common.torch_defaults import TORCH_PREFETCH
from lotus.settings.space import Measurement, Observed, Setting, Space
from lotus.tune.program.program import Watched

VARIED = ("start_method", "in_order", "threads")  # parameters varied on request only
_WORKERS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_PREFETCHES = (1, 2, 4, 8, 16)
_THREADED = (
    1.2  # threads of a process that run or wait for a core at once, from which it has several
)


def plain(setting: Setting, vary: Collection[str] = ()) -> Setting:
    """Return a setting without values that equal torch's defaults and are not varied."""
    if "start_method" not in vary:
        setting = dataclasses.replace(setting, start_method=None)
    if "in_order" not in vary and setting.in_order:
        setting = dataclasses.replace(setting, in_order=None)
    return setting.normal()


def step_of(watched: Watched) -> tuple[float, float]:
    """Return (median seconds of the program's training step, cores that it keeps busy).

    Steps during which no worker worked are used, if there are any. The first step, which often
    does more, is left out if there are others.
    """
    steps, cpu = watched.alone_s, watched.alone_cpu_s
    if not steps:
        steps = watched.steps_s[1:] if len(watched.steps_s) > 2 else watched.steps_s
        cpu = watched.step_cpu_s[1:] if len(watched.step_cpu_s) > 2 else watched.step_cpu_s
    seconds = statistics.median(steps) if steps else 0.0
    if not seconds > 0 or not cpu:
        return max(seconds, 0.0), 1.0
    return seconds, max(statistics.median(cpu) / seconds, 0.0)


def default_space(
    watched: Watched, cores: float, own: Measurement, vary: Collection[str] = ()
) -> Space:
    """Return the space of settings that may be worth a trial.

    The number of workers goes up to at least twice the cores. As waiting workers leave their cores
    to others, it goes up to twice the number that the trial of the own setting suggests, but no
    more than 16 per core and 64. It never exceeds the number of batches in an epoch. Where a worker
    has several threads that compute, as those of OpenCV and OpenMP, one thread is tried too. No
    workers are not tried where the program's code needs some.
    """
    setting = plain(watched.setting, vary)
    most = 2.0 * cores
    seen = own.observed
    if seen is None:
        most = max(most, min(16 * cores, _WORKERS[-1]))
    elif seen.cpu_s > 0:
        waits = seen.capacity_s * _processes(setting) - seen.cpu_s - seen.queued_s
        wanted = 2 * cores * (1 + max(waits, 0.0) / seen.cpu_s)
        most = max(most, min(wanted, 16 * cores, _WORKERS[-1]))
    most = min(most, watched.batches or math.inf)
    workers = {count for count in _WORKERS if count <= most} | {setting.num_workers}
    if max(workers) < most:  # more cores than the list covers
        workers.add(math.ceil(most))
    if watched.workers_needed_at:
        workers.discard(0)
    prefetches: set[int] = {*_PREFETCHES, setting.prefetch_factor or TORCH_PREFETCH}
    pins = {setting.pin_memory} | ({True, False} if watched.accelerator else set())
    starts: tuple[str | None, ...] = (setting.start_method,)
    if "start_method" in vary:
        starts = (*dict.fromkeys((setting.start_method, "fork", "spawn", "forkserver")),)
    orders: tuple[bool | None, ...] = (setting.in_order,)
    if "in_order" in vary and watched.in_order:
        orders = (*dict.fromkeys((setting.in_order, False)),)
    threads: tuple[int | None, ...] = (setting.threads,)
    if "threads" in vary:
        several = (count for count in (1, 2, 4, 8) if count <= max(cores, 1))
        threads = (*dict.fromkeys((setting.threads, *several)),)
    elif seen is not None and _is_threaded(seen, setting):
        threads = (*dict.fromkeys((setting.threads, 1)),)
    return Space(
        num_workers=tuple(sorted(workers)),
        prefetch_factor=tuple(sorted(prefetches)),
        pin_memory=tuple(sorted(pins)),
        persistent_workers=(False, True),
        start_method=starts,
        in_order=orders,
        threads=threads,
    )


def _is_threaded(seen: Observed, setting: Setting) -> bool:
    """Return True if several threads of a process make a batch."""
    runnable_s = seen.cpu_s + seen.queued_s
    return runnable_s > _THREADED * seen.capacity_s * _processes(setting)


def _processes(setting: Setting) -> int:
    """Return how many processes make batches."""
    return max(setting.num_workers, 1)
