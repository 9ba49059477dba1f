"""Keeps a search from trying settings that do not fit, given measured costs and current limits."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection
from pathlib import Path

from lotus.common.machine.memory_headroom import Headroom
from lotus.common.torch_defaults import TORCH_PREFETCH
from lotus.inside.tune.candidates.trial_requests import TrialBlock
from lotus.settings.space import Setting
from lotus.tune.program.program import Watched
from lotus.tune.search.limits import machine_limits, memory_guard
from lotus.tune.search.limits.machine_limits import MachineLimits
from lotus.tune.search.limits.memory_guard import Need
from lotus.tune.search.limits.resource_costs import ResourceCosts

# Bytes in a pipe for a batch without arrays: handles of shared tensors, strings.
_PIPE = 4096


def limits_of(pid: int) -> MachineLimits:
    """Return the limits of a process, with the number of ranks from its own environment.

    If the process has ended, which the next request will report, these are this process's limits.
    """
    if pid == os.getpid():
        return machine_limits.read()
    environment = dict(os.environ)
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
        pairs = (os.fsdecode(entry).partition("=") for entry in raw.split(b"\0") if b"=" in entry)
        environment = {name: value for name, _, value in pairs}
    except OSError:
        pass
    try:
        return machine_limits.read(environment=environment, pid=pid)
    except (ProcessLookupError, FileNotFoundError):
        return machine_limits.read()


class Safety:
    """Decides which settings may be tried. `read` returns the current limits.

    The number of batches in an epoch is no bound, because trials repeat their indices.
    """

    def __init__(self, watched: Watched, read: Callable[[], MachineLimits]) -> None:
        self._watched = watched
        self._read = read
        self.start = read()  # while no candidate is open
        self._sent: ResourceCosts | None = None  # from blocks with workers
        self._alone: ResourceCosts | None = None  # from blocks without workers
        self._worker_bytes: dict[str | None, int] = {}  # by start method
        self.unknown: dict[str, None] = {}  # what could not be checked

    @property
    def costs_known(self) -> bool:
        """True if a block has shown the costs of batches and workers."""
        return self._sent is not None or self._alone is not None

    def first(self, setting: Setting) -> bool:
        """Return True if a setting may be tried before costs are known.

        It may if it needs no more than the program's own, or is minimal.
        """
        own = self._watched.setting.normal()
        wanted = setting.normal()
        if wanted.num_workers == 0:
            return True
        small = wanted.num_workers == 1 and (wanted.prefetch_factor or 0) <= TORCH_PREFETCH
        return small or (
            wanted.num_workers <= own.num_workers
            and _in_flight(wanted) <= _in_flight(own)
            and wanted.pin_memory <= own.pin_memory
            and wanted.start_method in (None, own.start_method)
        )

    def learn(self, setting: Setting, block: TrialBlock) -> None:
        """Update the costs from a block; the largest values count."""
        before = self._sent if setting.num_workers else self._alone
        sent = (block.shared_bytes, block.pipe_bytes)
        if not setting.num_workers:
            # How a worker would send it is not known: assume that all is shared memory.
            sent = (block.batch_bytes, _PIPE)
        costs = ResourceCosts(
            batch_bytes=max(block.batch_bytes, before.batch_bytes if before else 0),
            shared_bytes=max(sent[0], before.shared_bytes if before else 0),
            pipe_bytes=max(sent[1], before.pipe_bytes if before else 0),
            worker_bytes=max(block.worker_bytes, before.worker_bytes if before else 0),
            main_bytes=max(block.main_bytes, (before.main_bytes or 0) if before else 0),
            tensors=max(block.tensors, 1, (before.tensors or 0) if before else 0),
        )
        if not setting.num_workers:
            self._alone = costs
            return
        self._sent = costs
        method = self._method(setting)
        known = self._worker_bytes.get(method, 0)
        self._worker_bytes[method] = max(known, block.worker_bytes)

    def costs(self, setting: Setting) -> ResourceCosts | None:
        """Return the costs for a setting, from workers with its start method if there were any.

        If the program's own process grew while it fetched, as with a cache, workers of trials
        inherit that memory. In a program that starts with the setting each allocates its own, so
        the growth is added.
        """
        grown = self._watched.grown_bytes if setting.num_workers else 0
        if self._sent is None:
            alone = self._alone
            if alone is None or not grown:
                return alone
            return dataclasses.replace(alone, worker_bytes=alone.worker_bytes + grown)
        method = self._method(setting)
        if method not in self._worker_bytes:
            method = max(self._worker_bytes, key=lambda name: self._worker_bytes[name])
        return dataclasses.replace(
            self._sent, worker_bytes=self._worker_bytes[method] + grown, start_method=method
        )

    def why_not(self, setting: Setting) -> str:
        """Return "", or why a setting does not fit even if no other candidate is open."""
        return self.beside(setting, (), self.start)

    def beside(
        self, setting: Setting, others: Collection[Setting], room: MachineLimits | None = None
    ) -> str:
        """Return "", or why a setting does not fit beside the worst case of other candidates.

        It must also fit in what is free now.
        """
        costs = self.costs(setting)
        if costs is None:
            return ""
        setting = dataclasses.replace(
            setting.normal(), start_method=self._method(setting) if setting.num_workers else None
        )
        needs = [self._need(other) for other in others]
        verdict = memory_guard.judge(
            setting, costs, _less(self.start, [need for need in needs if need])
        )
        if verdict.allowed:
            verdict = memory_guard.judge(setting, costs, room or self._now())
        self.unknown |= dict.fromkeys(verdict.unknown)
        return "; ".join(verdict.reasons)

    def _now(self) -> MachineLimits:
        try:
            return self._read()
        except OSError:  # the program has just ended, which the next trial will report
            return self.start

    def _need(self, setting: Setting) -> Need | None:
        costs = self.costs(setting)
        return None if costs is None else memory_guard.predict(setting, costs)

    def _method(self, setting: Setting) -> str | None:
        return setting.start_method or self._watched.setting.start_method


def _in_flight(setting: Setting) -> int:
    return setting.num_workers * (setting.prefetch_factor or 0)


def _less(start: MachineLimits, needs: Collection[Need]) -> MachineLimits:
    """Return the limits less what open candidates may need."""
    if not needs:
        return start
    memory = sum(need.memory_bytes for need in needs)
    shm = sum(need.shm_bytes for need in needs)
    descriptors = sum(need.descriptors or 0 for need in needs)
    left = start.descriptors
    return dataclasses.replace(
        start,
        memory=_without(start.memory, memory),
        shm=_without(start.shm, shm),
        descriptors=None if left is None else max(left - descriptors, 0),
    )


def _without(room: Headroom | None, taken: int) -> Headroom | None:
    if room is None:
        return None
    return Headroom(max(room.free - taken, 0), f"{room.why}, less what open candidates may need")
