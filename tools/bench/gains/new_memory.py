"""Measures what the advice on memory that is obtained anew gains.

    PYTHONPATH=. python tools/bench/gains/new_memory.py [--rounds 5] [--epochs 3]

new_memory_train.py runs in turn as it is, with the malloc of the advice, and with glibc's malloc
told to keep what is freed, which is not advised. Printed are the seconds of its loop, medians and
ranges over the rounds, the speed-up, paired by round, and the most memory that one of its processes
had.
"""

import argparse
import os
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from lotus.analysis.verdict.causes.making.kernel_work import OTHER_MALLOC
from tools.bench.gains.cached_samples import words_of
from tools.bench.provenance import header

PROGRAM = Path(__file__).with_name("new_memory_train.py")
CASES = [
    (library, "--mib", mib, "--workers", workers)
    for library, mib, workers in (
        ("numpy", "54", "2"),
        ("numpy", "8", "2"),
        ("torch", "54", "2"),
        ("torch", "54", "0"),
        ("torch", "8", "2"),
        ("steps", "98", "1"),
        ("steps", "12", "1"),
    )
]
OWN = "as it is"
KINDS = {
    OWN: {},
    "tcmalloc": OTHER_MALLOC,
    "glibc keeps": {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(16 << 30)},
}


def measure(words: Sequence[str], variables: Mapping[str, str]) -> tuple[float, float]:
    """Run the program; return the seconds of its loop, and the most memory of a process in MiB."""
    completed = subprocess.run(
        [sys.executable, str(PROGRAM), *words],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    if "cannot be preloaded" in completed.stderr:
        raise SystemExit(completed.stderr)
    _, seconds, _, mib = completed.stdout.split()
    return float(seconds), float(mib)


def compare(words: Sequence[str], rounds: int) -> None:
    measured: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for turn in range(rounds):
        kinds = list(KINDS)
        random.Random(turn).shuffle(kinds)
        for kind in kinds:
            measured[kind].append(measure(words, KINDS[kind]))
    own = [seconds for seconds, _ in measured[OWN]]
    for kind, runs in measured.items():
        seconds, mib = zip(*runs, strict=True)
        times = [before / after for before, after in zip(own, seconds, strict=True)]
        cells = [words_of(list(seconds)), "" if kind == OWN else words_of(times), f"{max(mib):.0f}"]
        name = f"{words[0]} {words[2]} {words[4]}"
        print(f"{name:12} {kind:12} " + " ".join(f"{cell:22}" for cell in cells).strip())
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--only", choices=("numpy", "torch", "steps"))
    options = parser.parse_args()
    load = f", load {os.getloadavg()[0]:.0f}, {options.epochs} epochs, {options.rounds} rounds"
    print(header(torch, load))
    print(f"{'MiB, workers':25} {'loop, s':22} {'times as fast':22} MiB, at most")
    for words in CASES:
        if options.only in (None, words[0]):
            compare([*words, "--epochs", str(options.epochs)], options.rounds)


if __name__ == "__main__":
    main()
