"""Search strategies: `ask` returns the next setting to measure, `tell` takes its measurement.

A strategy is pure: it uses no clock and no files, and random numbers only from its seed. So it runs
unchanged against a real program, a table of timings (tools/bench/tune/strategy_replay.py) or a
simulator.
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
    """A search strategy. `ask` returns the same setting until `tell` is called."""

    name: str

    def ask(self) -> Setting | None:
        """Return the next setting to measure, normalised; None when the search is done."""

    def tell(self, measurement: Measurement) -> None:
        """Record the measurement of the requested setting, or of any other setting."""

    def best(self) -> Measurement | None:
        """Return the fastest measurement that worked, the cheapest if equal; None if none did."""

    def reason(self) -> str:
        """Explain why the last setting was requested, or why none was, and what is ruled out."""


MAKERS: dict[str, Callable[[Space, int], Strategy]] = {
    "adapt": lambda space, seed: Adapt(space),
    "grid": lambda space, seed: Grid(space),
    "random": RandomSearch,
}


NAMES = tuple(sorted((*MAKERS, Lotus.name)))


def make(name: str, space: Space, *, seed: int = 0, problem: Problem | None = None) -> Strategy:
    """Return a new strategy by its name. Raises ValueError for an unknown name.

    Only `lotus` needs `problem`, whose space and seed are replaced by `space` and `seed`.
    """
    if name == Lotus.name:
        if problem is None:
            raise ValueError("lotus needs a problem, which describes the program")
        return Lotus(replace(problem, space=space, seed=seed))
    if name not in MAKERS:
        raise ValueError(f"no strategy is called {name!r}; there are {', '.join(NAMES)}")
    return MAKERS[name](space, seed)
