"""Two sides of simulated runs, held against each other."""

import io
from types import SimpleNamespace
from typing import Any

import numpy as np

from lotus.compare.comparison import Comparison, Side, compare
from lotus.reporters.base.console import plain_console
from lotus.reporters.compare import comparison_report as reporter
from tests.unit.simulated import Plan

HOSTILE = "\x1b[31mred\x1b]0;title\x07\n\r\u202e[bold]<script>"
MACHINE = {"host": "one", "boot_id": "x", "memory_bytes": 8 << 30, "kernel": "6.1"}
_made = iter(range(10**6))


def recorded(seed: int, scale: float = 1.0, **changed: Any) -> SimpleNamespace:
    """A run whose Loader takes `scale` times 2 ms, with noise of its own."""
    generator = np.random.default_rng(seed)
    operations = {
        "Loader": lambda sample, worker: scale * generator.normal(2, 0.3),
        "Normalize": lambda sample, worker: generator.normal(0.5, 0.05),
    }
    settings = {"operations": operations, "batches": 60, "epochs": 2, **changed}
    run = Plan(**settings).run()
    run.manifest |= {**MACHINE, "start_wall_ns": next(_made)}
    run.path = f"run-{seed}"
    return run


def held(a: Any, b: Any) -> Comparison:
    sides = [side if isinstance(side, list) else [side] for side in (a, b)]
    return compare(Side("before", sides[0], "A"), Side("after", sides[1], "B"))


def shown(*comparisons: Comparison) -> str:
    file = io.StringIO()
    reporter.write(plain_console(file), comparisons)
    return file.getvalue()


def hostile() -> Comparison:
    runs = []
    for seed in (1, 2):
        run = recorded(seed, operations={HOSTILE: 2.0}, batches=20)
        run.manifest |= {"command": ["python", HOSTILE, str(seed)], "host": HOSTILE + str(seed)}
        run.loaders["dataset"] = HOSTILE
        run.loaders["call_site"] = HOSTILE
        runs.append(run)
    return compare(Side(HOSTILE, runs[:1], "A"), Side("after", runs[1:], "B"))
