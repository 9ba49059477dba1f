"""Measures what two workers gain in loops that have none, and how well it is predicted.

    PYTHONPATH=. python tools/bench/gains/first_workers.py [--rounds 2] [--runs DIR] [NAME ...]

Programs of tests/diagnosis that make batches in the main process are traced once, for the
prediction. Then they run in turn as they are and with two workers that are kept, untraced. Printed
are the predicted gain of all loops with its interval, that of each pair, and whether their median
lies in the interval. `--runs DIR` keeps the recordings, or reads those that are there.
"""

import argparse
import contextlib
import os
import statistics
import tempfile
from pathlib import Path

import torch

from lotus.analysis.common.columns import float_column, total
from lotus.analysis.common.scope import Scope, scopes
from lotus.analysis.machine.core_use import core_use, left_cores
from lotus.analysis.replay.gain_prediction import GainPrediction
from lotus.analysis.verdict.run_time import run_time
from lotus.reading.run import load
from tools.bench.diagnosis import PROGRAMS, diagnosed, followed
from tools.bench.provenance import header

NAMES = (
    *(
        "kilns",
        "hods",
        "easels",
        "gouges",
        "rails",
        "shipyards",
        "tariffs",
        "neurons",
        "ventricles",
    ),
    *("lemurs", "oars", "decks", "parsonages", "beads", "tankards", "murmurs", "marathons"),
)
SETTING = {"num_workers": 2, "prefetch_factor": 2, "persistent_workers": True}


def longest_without_workers(run: Path) -> tuple[Scope, tuple[float, ...]] | None:
    """Return the loader that most time is spent in, and (gain, low, high) of all loops.

    None if all loaders have workers.
    """
    recorded = load(run)
    alone = [scope for scope in scopes(recorded) if not scope.num_workers]
    times = run_time(recorded)
    if not alone or times is None:
        return None
    scope = max(alone, key=lambda each: total(float_column(each.waits, "wait_ns")))
    prediction = GainPrediction(scope, left_cores(scope, core_use(scope))).with_workers(2, True)
    gains = prediction.gain, prediction.low, prediction.high
    return scope, tuple(times.gain_of_loops(scope.loader, gain) for gain in gains)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("names", nargs="*", default=NAMES)
    options = parser.parse_args()
    print(header(torch, f", load {os.getloadavg()[0]:.0f}, {options.rounds} rounds"))
    with contextlib.ExitStack() as stack:
        runs = options.runs or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        runs.mkdir(exist_ok=True)
        for name in options.names:
            (program,) = PROGRAMS.glob(f"*/{name}.py")
            diagnosed(program, runs / name)
            found = longest_without_workers(runs / name)
            if found is None:
                print(f"{name:12} has workers")
                continue
            scope, (gain, low, high) = found
            remedy = {"setting": SETTING, "environment": {}}
            pairs = [followed(program, scope.settings, remedy) for _ in range(options.rounds)]
            measured = [pair for pair in pairs if pair]
            if not measured:
                print(f"{name:12} keeps its settings")
                continue
            inside = low <= statistics.median(measured) <= high
            times = ", ".join(f"{pair:.2f}" for pair in measured)
            print(
                f"{name:12} predicted {gain:.2f} ({low:.2f} to {high:.2f})  measured {times}"
                f"  {'inside' if inside else 'outside'}",
                flush=True,
            )


if __name__ == "__main__":
    main()
