"""Measures how much faster epochs are with cached samples.

    PYTHONPATH=. python tools/bench/cached_samples.py [--rounds 3] [--samples 600] [--ram FOLDER]

cached_samples_train.py trains in turn unchanged and with `lotus run --settings` that cache samples
before the first operation that draws random numbers: on disk, and in a folder in memory. Each run
begins with an empty cache, which its first epoch fills. Printed are the seconds of the first
epoch and of a later one, medians and ranges over the rounds, and the speed-up of a later epoch over
the unchanged program, paired by round. The losses of all runs must be equal.
"""

import argparse
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import provenance
import torch

from lotus.settings import tuned_file
from lotus.settings.space import Setting
from lotus.settings.tuned_file import Entry, SampleCache, Target, Tuned
from lotus.workloads import jpegs

PROGRAM = Path(__file__).with_name("cached_samples_train.py")
FIRST_RANDOM = {
    "v1": (0, ("RandomResizedCrop", "RandomHorizontalFlip", "ToTensor", "Normalize")),
    "v2": (1, ("PILToTensor", "RandomResizedCrop", "RandomHorizontalFlip")),
    "fixed": (4, ("Resize", "CenterCrop", "ToTensor", "Normalize")),
}
EPOCHS = 4


def settings(folder: Path, cached_in: Path, pipeline: str, workers: int) -> Path:
    cut, operations = FIRST_RANDOM[pipeline]
    cache = SampleCache(("transform",), cut, operations, str(cached_in), 20_000_000_000)
    entry = Entry(Target(dataset="ImageFolder"), Setting(workers), cache=cache)
    tuned_file.write(folder / "plan.json", Tuned((entry,)))
    return folder / "plan.json"


def train(words: list[str]) -> tuple[list[float], list[str]]:
    """Return the seconds of each epoch, and its losses."""
    completed = subprocess.run(words, capture_output=True, text=True)
    rows = re.findall(r"epoch \d+ ([\d.]+) s, loss (\S+)", completed.stdout)
    if completed.returncode or len(rows) != EPOCHS:
        raise SystemExit(
            f"{' '.join(words)}: exit code {completed.returncode}\n{completed.stderr[-2000:]}"
        )
    return [float(seconds) for seconds, _ in rows], [loss for _, loss in rows]


def words_of(values: list[float]) -> str:
    return f"{statistics.median(values):6.2f} ({min(values):.2f} to {max(values):.2f})"


def compare(pipeline: str, workers: int, data: Path, folder: Path, options: argparse.Namespace):
    own = [sys.executable, str(PROGRAM), str(data), "--pipeline", pipeline]
    own += ["--workers", str(workers), "--epochs", str(EPOCHS)]
    places = {"disk": folder / "cache", "memory": options.ram / f"lotus-bench-{os.getpid()}"}
    durations: dict[str, list[list[float]]] = {name: [] for name in ("own", *places)}
    losses = set()
    for turn in range(options.rounds):
        names = list(durations)
        random.Random(turn).shuffle(names)
        for name in names:
            words = own
            if name in places:
                shutil.rmtree(places[name], ignore_errors=True)
                path = settings(folder, places[name], pipeline, workers)
                words = [sys.executable, "-m", "lotus", "run", "-q", "--settings", str(path), "--"]
                words += own
            seconds, loss = train(words)
            durations[name].append(seconds)
            losses.add(tuple(loss))
    for option in places.values():
        shutil.rmtree(option, ignore_errors=True)
    if len(losses) != 1:
        raise SystemExit(f"{pipeline}, {workers} workers: the losses differ: {losses}")
    for name, rounds in durations.items():
        later = [statistics.median(seconds[1:]) for seconds in rounds]
        plain = [statistics.median(seconds[1:]) for seconds in durations["own"]]
        times = [before / after for before, after in zip(plain, later, strict=True)]
        first = words_of([seconds[0] for seconds in rounds])
        row = f"{pipeline:6} {workers:7}  {name:6}  {first:22}  {words_of(later):22}"
        print(f"{row}  {words_of(times)}" if name != "own" else row, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=600)
    parser.add_argument("--ram", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--only", choices=FIRST_RANDOM, help="one pipeline")
    options = parser.parse_args()
    print(provenance.header(torch, f", {options.samples} pictures, {options.rounds} rounds"))
    print(f"\n{'':23}  {'first epoch, s':22}  {'later epoch, s':22}  times as fast")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "pictures"
        for _ in jpegs.make(data, options.samples):
            pass
        for pipeline in FIRST_RANDOM:
            for workers in (0, 2):
                if options.only in (None, pipeline):
                    compare(pipeline, workers, data, folder, options)


if __name__ == "__main__":
    main()
