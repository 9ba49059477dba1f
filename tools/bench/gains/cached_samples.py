"""Measures how much faster epochs are with cached samples, and whether `lotus plan` predicts it.

    PYTHONPATH=. python tools/bench/gains/cached_samples.py [--rounds 3] [--samples 600]
        [--ram FOLDER]

`lotus plan` looks at cached_samples_train.py once for each pipeline and number of workers (`demo`
is the script of `lotus demo`, whose step weighs more). Then the
script trains in turn unchanged and with `lotus run --settings`, with samples cached as planned: on
disk, and in a folder in memory. Each run begins with nothing cached, so its first epoch fills the
folder. Printed are the seconds of the first epoch and of a later one, medians and ranges over the
rounds; how many times as fast the later one is as that of the unchanged program, how many times as
long the first one takes, and the part of the time of ten epochs that is saved, each by pairs; and
the same as `lotus plan` predicted it from blocks of training, with 95 % intervals. `held` says
whether the interval holds the median, or how far it is off; of the part that is saved, how many
pairs it holds. The losses of all runs must be equal.
"""

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from lotus.workloads import jpegs
from tools.bench import provenance

PROGRAM = Path(__file__).with_name("cached_samples_train.py")
PIPELINES = ("v1", "v2", "fixed", "demo")
DEMO = "lotus.workloads.image_classification"
EPOCHS = 4
SAVED_IN = 10  # epochs


def planned(path: Path, cached_in: Path, own: list[str], budget: str) -> dict[str, Any]:
    """Have `lotus plan` write settings to `path`; return what it has timed."""
    words = [sys.executable, "-m", "lotus", "plan", "--json", "--ram", "0", "--disk", "20GB"]
    words += ["--epochs", str(SAVED_IN), "--folder", str(cached_in), "-o", str(path)]
    words += ["--budget", budget, "--", *own]
    completed = subprocess.run(words, capture_output=True, text=True)
    document = json.loads(completed.stdout[completed.stdout.index("{\n") :])
    print(document["sentence"], flush=True)
    if document["chosen"] is None:
        raise SystemExit(f"{' '.join(own)}: nothing is cached")
    return dict(document["timing"])


def train(words: list[str]) -> tuple[list[float], list[str]]:
    """Return the seconds of each epoch, and its losses."""
    completed = subprocess.run(words, capture_output=True, text=True)
    rows = re.findall(r"epoch \d+ ([\d.]+) s, loss (\S+)", completed.stdout)
    demo = re.findall(r"epoch \d+: loss (\S+), \d+ images in ([\d.]+) s", completed.stdout)
    rows += [(seconds, loss) for loss, seconds in demo]
    if completed.returncode or len(rows) != EPOCHS:
        raise SystemExit(
            f"{' '.join(words)}: exit code {completed.returncode}\n{completed.stderr[-2000:]}"
        )
    return [float(seconds) for seconds, _ in rows], [loss for _, loss in rows]


def words_of(values: list[float]) -> str:
    return f"{statistics.median(values):6.2f} ({min(values):.2f} to {max(values):.2f})"


def compare(pipeline: str, workers: int, data: Path, folder: Path, options: argparse.Namespace):
    own = [sys.executable, str(PROGRAM), str(data), "--pipeline", pipeline]
    if pipeline == "demo":
        own = [sys.executable, "-m", DEMO, "--data", str(data), "--batch-size", "16"]
    own += ["--workers", str(workers), "--epochs", str(EPOCHS)]
    places = {"disk": folder / "cache", "memory": options.ram / f"lotus-bench-{os.getpid()}"}
    places = {name: place for name, place in places.items() if options.place in (None, name)}
    plans = {
        name: planned(folder / f"{name}.json", place, own, options.budget)
        for name, place in places.items()
    }
    durations: dict[str, list[list[float]]] = {name: [] for name in ("own", *places)}
    losses = set()
    for turn in range(options.rounds):
        names = list(durations)
        random.Random(turn).shuffle(names)
        for name in names:
            words = own
            if name in places:
                shutil.rmtree(places[name], ignore_errors=True)
                words = [sys.executable, "-m", "lotus", "run", "-q"]
                words += ["--settings", str(folder / f"{name}.json"), "--"]
                words += own
            seconds, loss = train(words)
            durations[name].append(seconds)
            losses.add(tuple(loss))
    for option in places.values():
        shutil.rmtree(option, ignore_errors=True)
    if len(losses) != 1:
        raise SystemExit(f"{pipeline}, {workers} workers: the losses differ: {losses}")
    plain = durations.pop("own")
    print(f"{pipeline:6} {workers:7}  {'own':7} {cells([each[0] for each in plain], later(plain))}")
    for name, rounds in durations.items():
        times = [before / after for before, after in zip(later(plain), later(rounds), strict=True)]
        longer = [after[0] / before[0] for before, after in zip(plain, rounds, strict=True)]
        seconds = cells([each[0] for each in rounds], later(rounds))
        print(f"{pipeline:6} {workers:7}  {name:7} {seconds}", flush=True)
        plan = plans[name]
        print_saved(plain, rounds, plan["saved_share"])
        if plan["why"] is not None:
            print(f"{'':16} not predictable: {plan['why']}; later {words_of(times)}", flush=True)
            continue
        first = plan["first_epoch_times"]
        for what, measured, of in (("later", times, plan["times"]), ("first", longer, first)):
            said = f"{of['mean']:.2f} ({of['low']:.2f} to {of['high']:.2f})"
            print(f"{'':16} {what:7} {words_of(measured)}, predicted {said}: {held(measured, of)}")


def print_saved(
    plain: list[list[float]], rounds: list[list[float]], of: dict[str, float] | None
) -> None:
    """Print which part of ten epochs each pair saves, and in how many the plan's interval holds."""

    def whole(seconds: list[float]) -> float:
        return seconds[0] + (SAVED_IN - 1) * statistics.median(seconds[1:])

    saved = [1 - whole(after) / whole(before) for before, after in zip(plain, rounds, strict=True)]
    said = "not known"
    if of is not None:
        inside = sum(of["low"] <= each <= of["high"] for each in saved)
        said = f"{of['mean']:.0%} ({of['low']:.0%} to {of['high']:.0%}): {inside} of {len(saved)}"
    pairs = ", ".join(f"{each:.0%}" for each in saved)
    print(f"{'':16} saved   {pairs}, predicted {said}", flush=True)


def later(rounds: list[list[float]]) -> list[float]:
    return [statistics.median(seconds[1:]) for seconds in rounds]


def cells(*columns: list[float]) -> str:
    return "  ".join(f"{words_of(values):22}" for values in columns)


def held(measured: list[float], interval: dict[str, float]) -> str:
    """Say whether an interval holds the median of what was measured."""
    median = statistics.median(measured)
    if interval["low"] <= median <= interval["high"]:
        return "held"
    return f"not held, {interval['mean'] / median - 1:+.0%}"


def parser_of(doc: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks on these pictures have."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=600)
    return parser


@contextlib.contextmanager
def pictures(options: argparse.Namespace) -> Iterator[tuple[Path, Path]]:
    """Say what is measured, and make the pictures: their folder, and the one that it is in."""
    print(provenance.header(torch, f", {options.samples} pictures, {options.rounds} rounds"))
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "pictures"
        for _ in jpegs.make(data, options.samples):
            pass
        yield data, Path(name)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--ram", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--only", choices=PIPELINES, help="one pipeline")
    parser.add_argument("--place", choices=("disk", "memory"), help="one place")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--budget", default="60s", help="of each plan")
    options = parser.parse_args()
    with pictures(options) as (data, folder):
        print(f"\n{'':24} {'first epoch, s':22}  {'later epoch, s':22}")
        for pipeline in PIPELINES:
            for workers in options.workers:
                if options.only in (None, pipeline):
                    compare(pipeline, workers, data, folder, options)


if __name__ == "__main__":
    main()
