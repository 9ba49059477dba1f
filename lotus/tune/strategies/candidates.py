"""The candidate settings of a search: those of a space that have not been ruled out.

Settings that make the same loader, or differ only in what has no effect, are one candidate.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import replace

from lotus.common.torch_defaults import TORCH_PREFETCH
from lotus.settings.space import Setting
from lotus.tune.strategies.problem import Problem


class CandidateSettings:
    """The settings of a problem that may still be tried.

    `left` has them, cheapest first. `names` maps each of them, and each measured setting, to the
    setting that is requested, of all equivalent ones. `left_out` maps what is not tried to why.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.names: dict[Setting, Setting] = {}
        self.left_out: dict[str, str] = {}
        self.own = self.same(problem.own)
        self.names[self.own] = problem.own.normal()
        self.left = self._all()
        self.space = frozenset(self.left)  # before any setting has failed

    def same(self, setting: Setting) -> Setting:
        """Return the representative of all equivalent settings."""
        setting, own, problem = setting.normal(), self._problem.own.normal(), self._problem
        fields = {
            name: None
            for name in ("start_method", "in_order", "threads")
            if getattr(setting, name) == getattr(own, name)
        }
        if not problem.accelerator and False in problem.space.pin_memory:
            fields["pin_memory"] = False  # type: ignore[assignment]
        if problem.batches is not None and setting.num_workers:
            enough = math.ceil(problem.batches / setting.num_workers)
            steps = sorted(p for p in _prefetches(problem.space.prefetch_factor) if p >= enough)
            if steps and (setting.prefetch_factor or 0) > steps[0]:
                fields["prefetch_factor"] = steps[0]  # type: ignore[assignment]
        return replace(setting, **fields).normal()  # type: ignore[arg-type]

    def drop(self, failed: Setting, why: str, worked: Collection[Setting]) -> None:
        """Remove a failed setting, and all larger ones unless one of those has worked."""
        larger = [
            setting for setting in self.left if setting != failed and _larger(setting, failed)
        ]
        if any(_larger(setting, failed) for setting in worked):
            larger = []
        gone = {failed, *larger} - set(worked)
        self.left = [setting for setting in self.left if setting not in gone]
        self.left_out[failed.words()] = why
        if larger:
            self.left_out[f"{len(larger)} settings that need at least {failed.words()}"] = (
                "as that failed"
            )

    def line(self, setting: Setting, name: str) -> list[Setting]:
        """Return the candidates with workers that differ from `setting` in one parameter only."""
        blank = {name: getattr(setting, name)}
        return [
            other
            for other in self.left
            if other != setting and other.num_workers and replace(other, **blank) == setting
        ]

    def _all(self) -> list[Setting]:
        """Return the distinct settings of the space that are allowed, cheapest first."""
        distinct: set[Setting] = set()
        equal = 0
        refused: dict[str, list[Setting]] = {}
        for setting in self._problem.space.settings():
            same = self.same(setting)
            if same in distinct:
                equal += 1
                continue
            why = self._problem.allowed(self.names.get(same, same))
            if why:
                refused.setdefault(why, []).append(same)
            else:
                distinct.add(same)
                self.names.setdefault(same, setting)
        if equal:
            self.left_out[f"{equal} settings"] = "they make the same loader as others of the space"
        for why, settings in refused.items():
            first = min(settings).words()
            more = f" and {len(settings) - 1} more" if len(settings) > 1 else ""
            self.left_out[first + more] = why
        return sorted(distinct)


def _prefetches(values: Iterable[int | None]) -> list[int]:
    return [TORCH_PREFETCH if value is None else value for value in values]


def _larger(setting: Setting, other: Setting) -> bool:
    """Return True if a setting needs at least as much of every resource as another."""
    return (
        setting.start_method == other.start_method
        and setting.num_workers >= other.num_workers
        and (setting.prefetch_factor or 0) >= (other.prefetch_factor or 0)
        and setting.pin_memory >= other.pin_memory
    )
