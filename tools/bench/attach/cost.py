"""Measures the cost of `lotus attach` to a program: its steps per second and CPU time per step.

    PYTHONPATH=. python tools/bench/attach/cost.py [--pairs 12] [--seconds 8] [--workers 1]
        [--rows FILE]

This file is also the program: it trains on samples that compute, and counts its steps. It keeps
running while stretches with and without `lotus attach` are measured in pairs, of alternating order.
A stretch begins after py-spy has begun and ends before py-spy ends, so that it excludes the import
of pandas at the end. Printed is the mean of the pairs' logarithmic ratios with its 95 % interval
(Student's t). Rows already in --rows are not measured again.
"""

import argparse
import math
import mmap
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from lotus.attach.threads.thread_readings import children_of
from lotus.common.numbers.statistics import t_quantile
from tools.bench import provenance
from tools.bench.row_file import RowFile

SIZE, BATCH = 160, 8
_MARGIN_S = 2.0  # after py-spy has begun


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    """Samples of some milliseconds of computing, in Python and in C."""

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> torch.Tensor:
        values = np.random.default_rng(index).random((SIZE, SIZE))
        total = 0.0
        for row in values:
            total += float(row.mean())
        return torch.from_numpy(np.sort(values, axis=0)) * total


def train(counter: Path, workers: int) -> None:
    """Count steps in a file, until it is ended."""
    torch.set_num_threads(1)
    weight = torch.zeros(SIZE, dtype=torch.float64)
    with counter.open("r+b") as file, mmap.mmap(file.fileno(), 8) as page:
        loader = torch.utils.data.DataLoader(Samples(), batch_size=BATCH, num_workers=workers)
        for step, batch in enumerate(loader):
            weight += batch.mean(dim=(0, 1))
            page[:] = struct.pack("<Q", step + 1)


class Target:
    """The program: its number of steps, and its CPU time."""

    def __init__(self, folder: Path, workers: int) -> None:
        self._counter = folder / "steps"
        self._counter.write_bytes(bytes(8))
        words = [sys.executable, __file__, "--train", str(self._counter), f"--workers={workers}"]
        self.child = subprocess.Popen(words, start_new_session=True)
        while self.steps() < 50:
            if self.child.poll() is not None:
                raise SystemExit("the program has ended")
            time.sleep(0.1)
        self._pids = [self.child.pid, *children_of(self.child.pid)]

    def steps(self) -> int:
        return int(struct.unpack("<Q", self._counter.read_bytes())[0])

    def read(self) -> tuple[float, int, float]:
        """Return (seconds, steps, CPU seconds)."""
        used = sum(time.clock_gettime((~pid << 3) | 2) for pid in self._pids)
        return time.monotonic(), self.steps(), used

    def stop(self) -> None:
        os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()


def stretch(target: Target, seconds: float) -> tuple[float, float]:
    """Measure (steps per second, CPU seconds per step) from now on."""
    before = target.read()
    time.sleep(seconds)
    after = target.read()
    passed, steps, used = (last - first for first, last in zip(before, after, strict=True))
    return steps / passed, used / steps


def watched(target: Target, seconds: float, folder: Path) -> tuple[float, float]:
    """Measure the same while `lotus attach` observes it."""
    run = folder / "run"
    words = [sys.executable, "-m", "lotus", "attach", str(target.child.pid), "-f", "-o", str(run)]
    words.append(f"--seconds={seconds + 2 * _MARGIN_S}")
    watcher = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not any(map(samples, children_of(watcher.pid))):
        if watcher.poll() is not None:
            raise SystemExit(f"lotus attach ended with {watcher.returncode}")
        time.sleep(0.02)
    time.sleep(_MARGIN_S)
    result = stretch(target, seconds)
    if watcher.wait():
        raise SystemExit(f"lotus attach ended with {watcher.returncode}")
    return result


def samples(pid: int) -> bool:
    """Return whether a process is py-spy, sampling."""
    try:
        return b"record" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def pairs(args: argparse.Namespace, target: Target, folder: Path) -> Iterator[dict[str, float]]:
    """Yield pairs, those of --rows first."""
    file = RowFile(args.rows)
    existing = file.read()
    yield from existing
    for number in range(len(existing), args.pairs):
        results = {}
        for attached in (number % 2 == 0, number % 2 != 0):
            results[attached] = (
                watched(target, args.seconds, folder) if attached else stretch(target, args.seconds)
            )
        row = {
            "load": round(os.getloadavg()[0], 1),
            "steps_per_s": results[False][0],
            "cpu_per_step": results[False][1],
            "steps_ratio": results[True][0] / results[False][0],
            "cpu_ratio": results[True][1] / results[False][1],
        }
        file.add(row)
        yield row


def line_of(name: str, ratios: Sequence[float]) -> str:
    """Return the mean ratio as a change, with its 95 % interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean, width = statistics.mean(logs), math.inf
    if len(logs) > 1:
        width = t_quantile(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    low, middle, high = (100 * math.expm1(at) for at in (mean - width, mean, mean + width))
    return f"{name}: {middle:+.1f} % ({low:+.1f} to {high:+.1f} %, {len(logs)} pairs)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=8.0, help="of a stretch")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rows", type=Path, help="file of rows, a JSON object a line")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train is not None:
        train(args.train, args.workers)
        return
    print(provenance.header(torch, more=f"\nworkers  {args.workers}"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        target = Target(folder, args.workers)
        try:
            rows = []
            for row in pairs(args, target, folder):
                rows.append(row)
                print({key: round(value, 4) for key, value in row.items()}, flush=True)
        finally:
            target.stop()
    print(line_of("steps a second", [row["steps_ratio"] for row in rows]))
    print(line_of("CPU time a step", [row["cpu_ratio"] for row in rows]))


if __name__ == "__main__":
    main()
