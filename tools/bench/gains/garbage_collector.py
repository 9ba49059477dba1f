"""Measures what the advice on full collections of garbage gains, and how well it is measured.

    PYTHONPATH=. python tools/bench/gains/garbage_collector.py [--rounds 5]

garbage_collector_train.py runs in turn as it is, with gc.disable(), with higher thresholds, and
after gc.freeze(), which is not advised. Printed are the seconds of its loop, medians and ranges
over the rounds, and the speed-up, paired by round. Then, of one run each without workers, the part
of the time in which batches are made that full collections take: by callbacks of `gc` in the
program, and by `lotus trace`.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from tools.bench.gains.cached_samples import words_of
from tools.bench.provenance import header

PROGRAM = Path(__file__).with_name("garbage_collector_train.py")
OWN, KINDS = "as-is", ("as-is", "disabled", "threshold", "frozen")


def output(words: Sequence[str]) -> dict[str, float]:
    """Run the program; return the numbers that it prints by their names."""
    completed = subprocess.run(
        [sys.executable, str(PROGRAM), *words], capture_output=True, text=True, check=True
    )
    return {name: float(value) for name, value in map(str.split, completed.stdout.splitlines())}


def compare(kib: str, workers: str, rounds: int) -> None:
    measured: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for turn in range(rounds):
        kinds = list(KINDS)
        random.Random(turn).shuffle(kinds)
        for kind in kinds:
            words = ["--kib", kib, "--workers", workers, "--collector", kind]
            measured[kind].append(output(words)["seconds"])
    for kind, seconds in measured.items():
        times = [before / after for before, after in zip(measured[OWN], seconds, strict=True)]
        gained = "" if kind == OWN else words_of(times)
        print(f"{kib:>5} {workers:>8}  {kind:12} {words_of(seconds):24} {gained}".rstrip())
    sys.stdout.flush()


def shares(kib: str) -> tuple[float, float]:
    """Return the share of full collections, by callbacks and by lotus; 0.0: it tells of none."""
    by_callbacks = output(["--kib", kib, "--count"])["share"]
    with tempfile.TemporaryDirectory() as folder:
        lotus, run = [sys.executable, "-m", "lotus"], f"{folder}/run"
        program = [sys.executable, str(PROGRAM), "--kib", kib]
        trace = [*lotus, "trace", "-q", "-o", run, "--", *program]
        subprocess.run(trace, check=True, stdout=subprocess.DEVNULL)
        report = subprocess.run([*lotus, "report", "--json", run], check=True, capture_output=True)
    causes = json.loads(report.stdout)["verdict"]["causes"]
    return by_callbacks, max(cause["evidence"].get("collected_share", 0.0) for cause in causes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(header(torch, f", load {os.getloadavg()[0]:.0f}, {options.rounds} rounds"))
    print("  KiB  workers  collector    loop, s                  times as fast")
    for kib, workers in (("640", "0"), ("640", "2"), ("64", "0"), ("8", "0")):
        compare(kib, workers, options.rounds)
    print("  KiB  share by callbacks, by lotus")
    for kib in ("640", "160", "64", "8"):
        print(f"{kib:>5}  {' '.join(f'{share:.0%}' for share in shares(kib))}", flush=True)


if __name__ == "__main__":
    main()
