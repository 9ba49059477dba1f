"""What there is to choose among: the settings of a space that are not known to be of no use.

Settings that make the same loader, or differ in nothing that matters here, are one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import replace

from lotus.settings.space import PARAMETERS, TORCH_PREFETCH, Setting
from lotus.tune.strategies.problem import Problem


class CandidateSettings:
    """The settings of a problem that may still be tried.

    `left`: they, the cheapest first. `names`: for each, and for what was told, the setting by
    which it is asked for, of those that are the same. `left_out`: what is not tried, and why.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.names: dict[Setting, Setting] = {}
        self.left_out: dict[str, str] = {}
        self.own = self.same(problem.own)
        self.names[self.own] = problem.own.normal()
        self.left = self._all()
        self.space = frozenset(self.left)  # at the start, when nothing had failed

    def same(self, setting: Setting) -> Setting:
        """One of all settings that make the same loader, or differ in nothing that matters."""
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
        """What a failure rules out: what is larger in the same respect, if nothing larger works."""
        larger = [
            setting for setting in self.left if setting != failed and _larger(setting, failed)
        ]
        if any(_larger(setting, failed) for setting in worked):
            larger = []
        gone = {failed, *larger} - set(worked)
        self.left = [setting for setting in self.left if setting not in gone]
        self.left_out[words(failed)] = why
        if larger:
            self.left_out[f"{len(larger)} settings with as much or more than {words(failed)}"] = (
                "as that failed"
            )

    def line(self, setting: Setting, name: str) -> list[Setting]:
        """Those with workers that differ from a setting in nothing but one parameter."""
        blank = {name: getattr(setting, name)}
        return [
            other
            for other in self.left
            if other != setting and other.num_workers and replace(other, **blank) == setting
        ]

    def _all(self) -> list[Setting]:
        """All of the space that is worth a thought, the cheapest first."""
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
            self.left_out[f"{equal} settings"] = "they make the same loader as others here"
        for why, settings in refused.items():
            first = words(min(settings))
            more = f" and {len(settings) - 1} more" if len(settings) > 1 else ""
            self.left_out[first + more] = why
        return sorted(distinct)


def words(setting: Setting) -> str:
    """A setting in a few words."""
    parts = [f"{setting.num_workers} workers" if setting.num_workers != 1 else "1 worker"]
    if setting.num_workers:
        parts.append(f"prefetch {setting.prefetch_factor or TORCH_PREFETCH}")
    for name in PARAMETERS[2:]:
        value = getattr(setting, name)
        if value is True:
            parts.append(name)
        elif value not in (False, None) or (value is False and name == "in_order"):
            parts.append(f"{name} {value}")
    return ", ".join(parts)


def _prefetches(values: Iterable[int | None]) -> list[int]:
    return [TORCH_PREFETCH if value is None else value for value in values]


def _larger(setting: Setting, other: Setting) -> bool:
    """Whether a setting needs at least as much of everything as another one."""
    return (
        setting.start_method == other.start_method
        and setting.num_workers >= other.num_workers
        and (setting.prefetch_factor or 0) >= (other.prefetch_factor or 0)
        and setting.pin_memory >= other.pin_memory
    )
