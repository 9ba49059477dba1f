"""Binds a paused rank to its share of the cores: all ranks of a machine run trials at once."""

from __future__ import annotations

import os
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Variables with the number of ranks on this machine: torchrun, Open MPI, MPICH, Intel MPI.
LOCAL_WORLDS = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


def take_share(environ: Mapping[str, str]) -> list[tuple[int, set[int]]]:
    """Bind all threads to this rank's share of the cores; return their previous affinities."""
    ranks = number_in(environ, LOCAL_WORLDS) or 1
    if ranks < 2:
        return []
    before = []
    cores = sorted(os.sched_getaffinity(0))
    with suppress(OSError):
        if set(cores) < os.sched_getaffinity(os.getppid()):
            return []  # the launcher has bound each rank to its own
    share = max(len(cores) // ranks, 1)
    mine = cores[:share]
    for name in os.listdir("/proc/self/task"):
        with suppress(OSError):
            task = int(name)
            before.append((task, os.sched_getaffinity(task)))
            os.sched_setaffinity(task, mine)
    return before


def number_in(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = environ.get(name) or ""
        if text.isascii() and text.isdecimal() and len(text) < 7:
            return int(text)
    return None
