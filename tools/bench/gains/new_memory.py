"""Measures what the advice on memory that is obtained anew gains.

    PYTHONPATH=. python tools/bench/gains/new_memory.py [--rounds 5]

new_memory_train.py runs in turn as it is and with the environment variables of the advice. Printed
are the seconds of its loop, medians and ranges over the rounds, and the speed-up, paired by round.
"""

import argparse
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from lotus.analysis.verdict.causes.kernel_work import KEEPS_MEMORY
from tools.bench.gains.cached_samples import words_of
from tools.bench.provenance import header

PROGRAM = Path(__file__).with_name("new_memory_train.py")
CASES = [
    (library, "--mib", mib, "--workers", workers)
    for library, mib, workers in (
        ("numpy", "54", "2"),
        ("numpy", "54", "0"),
        ("numpy", "8", "2"),
        ("torch", "54", "2"),
        ("torch", "54", "0"),
        ("torch", "8", "2"),
        ("steps", "98", "1"),
        ("steps", "12", "1"),
    )
]


def seconds(words: Sequence[str], variables: dict[str, str]) -> float:
    completed = subprocess.run(
        [sys.executable, str(PROGRAM), *words],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(completed.stdout.split()[-1])


def compare(words: Sequence[str], rounds: int) -> str:
    durations: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(rounds):
        kinds = [False, True]
        random.Random(turn).shuffle(kinds)
        for kept in kinds:
            durations[kept].append(seconds(words, KEEPS_MEMORY if kept else {}))
    times = [before / after for before, after in zip(*durations.values(), strict=True)]
    cells = [words_of(durations[False]), words_of(durations[True]), words_of(times)]
    return " ".join(f"{cell:22}" for cell in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("numpy", "torch", "steps"))
    options = parser.parse_args()
    print(header(torch, f", load {os.getloadavg()[0]:.0f}"))
    print(f"{'library, MiB, workers':24} {'as it is, s':22} {'malloc keeps, s':22} times as fast")
    for words in CASES:
        if options.only not in (None, words[0]):
            continue
        name = f"{words[0]} {words[2]} {words[4]}"
        print(f"{name:24} {compare(words, options.rounds)}", flush=True)


if __name__ == "__main__":
    main()
