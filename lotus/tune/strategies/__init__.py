"""The ways to search a space: each is asked for the next setting and told what it gave.

A strategy is pure: no clock, no files, no chance but from its seed. So it runs unchanged against a
real program, a table of timings (tools/bench/strategy_replay.py) or a simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from lotus.settings.space import Measurement, Setting, Space
from lotus.tune.strategies.adapt import Adapt
from lotus.tune.strategies.grid import Grid
from lotus.tune.strategies.predictive import Lotus
from lotus.tune.strategies.problem import Problem
from lotus.tune.strategies.random_search import RandomSearch


class Strategy(Protocol):
    """What tunes. Between two answers `ask` gives the same setting however often it is called."""

    name: str

    def ask(self) -> Setting | None:
        """The next setting to measure, normal; None when the search is done."""

    def tell(self, measurement: Measurement) -> None:
        """What a setting gave: the one asked for, or any other that was measured besides."""

    def best(self) -> Measurement | None:
        """The fastest told that worked, the cheapest of equals; None where none did."""

    def reason(self) -> str:
        """In words, why the last setting was asked for, or why none was, and what is ruled out."""


MAKERS: dict[str, Callable[[Space, int], Strategy]] = {
    "adapt": lambda space, seed: Adapt(space),
    "grid": lambda space, seed: Grid(space),
    "random": RandomSearch,
}


NAMES = tuple(sorted((*MAKERS, Lotus.name)))


def make(name: str, space: Space, *, seed: int = 0, problem: Problem | None = None) -> Strategy:
    """The strategy of that name, at its start; ValueError where there is none.

    `lotus` goes by its problem, in which `space` and `seed` are put; the others need none.
    """
    if name == Lotus.name:
        if problem is None:
            raise ValueError("lotus needs the problem: what is known of the program")
        return Lotus(replace(problem, space=space, seed=seed))
    if name not in MAKERS:
        raise ValueError(f"no strategy is called {name!r}; there are {', '.join(NAMES)}")
    return MAKERS[name](space, seed)
