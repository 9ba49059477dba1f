"""Measures the error of joined counts, and how often their intervals contain the exact ones.

    PYTHONPATH=. python tools/bench/accuracy/joined_counts.py [--runs 20] [--seconds 12]
        [--frequency 997]

Each run is a program of two worker processes that do five operations of very different lengths on
arrays of random size, under `perf record -e cpu-clock`. Each worker reads its task clock at the
start and end of each operation (time.thread_time_ns, if this is CPU time of the thread): these are
the exact counts. Samples are then joined to the intervals, by time alone (`joined`) and calibrated
by the thread's total (`calibrated`). Printed are the errors, and how often the 95 % intervals
contain the exact count, with and without exact counts used for the spread.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from native_map.estimate import count_estimates, interval_join
from native_map.recording import perf_data
from tools.bench import provenance

EVENT = "cpu-clock"
NAMES = ("Loader", "Crop", "ToTensor", "Normalize", "Flip")


def reading(clock: Callable[[], int], counter: Callable[[], int]) -> int:
    """Return how much more than the clock the counter counts for an empty interval."""
    before, start = counter(), clock()
    end, after = clock(), counter()
    return after - before - (end - start)


def work(path: str, seconds: float, seed: int, shape: float) -> None:
    """A worker: operations until the time is over; writes what ran when, and for how much."""
    import zlib

    rng = np.random.default_rng(seed)
    text = rng.integers(0, 40, 400_000).astype(np.uint8).tobytes()
    image = rng.integers(0, 255, (500, 500, 3)).astype(np.uint8)
    scratch = np.empty(image.shape, np.float32)

    def loader(size: float) -> None:  # milliseconds of C: several periods
        zlib.compress(text[: int(60_000 * size)], 6)

    def crop(size: float) -> None:  # about one period
        edge = int(400 * min(size, 1.2))
        np.ascontiguousarray(image[:edge, :edge].transpose(2, 0, 1)).sum(axis=2)

    def to_tensor(size: float) -> None:
        np.multiply(image[:, : int(150 * size)], 1 / 255, out=scratch[:, : int(150 * size)])

    def normalize(size: float) -> None:
        scratch[: int(100 * size)] *= 0.5

    def flip(size: float) -> None:  # Python, tens of microseconds
        sum(range(int(2_000 * size)))

    cycle = [(0, loader)] + [(1, crop), (2, to_tensor), (2, to_tensor)] * 2
    cycle += [(3, normalize), (4, flip)] * 12  # so often that each has its thousand samples
    rows: list[tuple[int, int, int, int]] = []
    clock, counter = time.monotonic_ns, time.thread_time_ns
    cost = sorted(reading(clock, counter) for _ in range(2000))[1000]
    until = clock() + int(seconds * 1e9)
    while clock() < until:
        for number, operation in cycle:
            size = float(np.exp(rng.normal(0, shape)))
            size = min(size, 2.5)
            before, start = counter(), clock()
            operation(size)
            end, after = clock(), counter()
            rows.append((number, start, end, after - before - cost))
    np.save(path, np.array(rows, np.int64))


def parent(folder: str, seconds: float, seed: int, shape: float) -> None:
    """The program: waits until perf is there, forks two workers, waits for them."""
    os.kill(os.getpid(), signal.SIGSTOP)
    children = []
    for worker in range(2):
        pid = os.fork()
        if pid == 0:
            work(f"{folder}/{os.getpid()}.npy", seconds, seed * 10 + worker, shape)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


def record(folder: str, args: argparse.Namespace, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One run under perf: its intervals and exact counts."""
    command = [sys.executable, os.path.abspath(__file__), "--parent", folder]
    command += ["--seconds", str(args.seconds), "--seed", str(seed), "--shape", str(args.shape)]
    program = subprocess.Popen(command)
    os.waitid(os.P_PID, program.pid, os.WSTOPPED | os.WNOWAIT)
    words = ["perf", "record", "-qN", "-p", str(program.pid), "-e", EVENT]
    words += ["-F", str(args.frequency), "-k", "CLOCK_MONOTONIC", "-o", f"{folder}/perf.data"]
    take, give = os.pipe()
    answer, reply = os.pipe()
    perf = subprocess.Popen([*words, f"--control=fd:{take},{reply}"], pass_fds=(take, reply))
    os.write(give, b"ping\n")
    os.read(answer, 16)  # it answers once it records
    program.send_signal(signal.SIGCONT)
    program.wait()
    perf.wait()
    for end in (take, give, answer, reply):
        os.close(end)
    parts = []
    for file in sorted(Path(folder).glob("*.npy")):
        rows = np.load(file)
        pid = int(file.stem)
        part = pd.DataFrame({"start_ns": rows[:, 1], "end_ns": rows[:, 2], EVENT: rows[:, 3]})
        part["operation"] = pd.Categorical.from_codes(rows[:, 0], pd.Index(NAMES))
        part["pid"] = part["tid"] = pid
        parts.append(part)
    table = pd.concat(parts, ignore_index=True)
    table["kind"] = pd.Categorical(["operation"] * len(table))
    exact = pd.DataFrame({"row": np.arange(len(table)), EVENT: table.pop(EVENT).astype(float)})
    return table, exact


def estimated(
    intervals: pd.DataFrame, exact: pd.DataFrame, samples: pd.DataFrame, event: int
) -> pd.DataFrame:
    """Joined and calibrated counts of each operation beside the exact ones."""
    index = interval_join.index(intervals)
    samples = samples[samples["event"] == event]
    covered = (int(samples["time_ns"].min()), int(samples["time_ns"].max()))
    counted = count_estimates.counted_rows(intervals, exact, covered, [EVENT])
    tally = count_estimates.Tally(index, intervals, [EVENT], counted)
    tally.add(samples, index.attribute(samples))
    table = tally.table()
    own = count_estimates.own_counts(index, exact, EVENT, len(intervals))
    groups = count_estimates.Groups.of(index, intervals)
    truth = exact[EVENT].groupby(intervals["operation"], observed=True).sum()
    parts = []
    for name, counts in (("time", None), ("counts", own)):
        scans = {EVENT: count_estimates.scan(index, groups, table, counts)}
        factors = count_estimates.calibration(table, index, {EVENT: own}, counted, scans)
        made = count_estimates.operations(table, scans, factors)
        made = made[made["kind"] == "operation"].set_index("operation")
        made["exact"], made["spread_by"] = truth, name
        made["factor"] = factors["factor"].mean()
        parts.append(made.reset_index())
    return pd.concat(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--frequency", type=int, default=997)
    parser.add_argument("--shape", type=float, default=0.4, help="sd of the log of sizes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="write every run's rows to this CSV file")
    parser.add_argument("--parent", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.parent:
        parent(args.parent, args.seconds, args.seed, args.shape)
        return
    print(provenance.header(np))
    parts = []
    for run in range(args.runs):
        with tempfile.TemporaryDirectory() as folder:
            intervals, exact = record(folder, args, args.seed * 1000 + run)
            recording = perf_data.read(f"{folder}/perf.data")
            result = estimated(intervals, exact, recording.samples, 0)
        parts.append(result.assign(run=run))
        if args.keep:
            pd.concat(parts).to_csv(args.keep, index=False)
    show(pd.concat(parts, ignore_index=True), args)


def show(rows: pd.DataFrame, args: argparse.Namespace) -> None:
    print(
        f"{args.runs} runs of {args.seconds:g} s, two workers, {EVENT} at {args.frequency} Hz;",
        end=" ",
    )
    print(f"mean factor of calibration {rows['factor'].mean():.4f}")
    for spread_by, of in rows.groupby("spread_by"):
        print(f"spread by {spread_by}")
        print(
            f"  {'operation':11} {'samples':>7} {'joined':>17} {'calibrated':>17}"
            f" {'+-':>6} {'held':>6} {'held cal.':>9} {'sd of z':>8} {'cal.':>5}"
        )
        for name, part in [*of.groupby("operation"), ("all >= 1000", of[of["samples"] >= 1000])]:
            if not len(part):
                continue
            error = part["count"] / part["exact"] - 1
            better = part["calibrated"] / part["exact"] - 1
            width = (part["high"] - part["low"]) / 2 / part["count"]
            held = part["exact"].between(part["low"], part["high"]).mean()
            held2 = part["exact"].between(part["calibrated_low"], part["calibrated_high"]).mean()
            z = (error / (width / 1.96)).pow(2).mean() ** 0.5
            width2 = (part["calibrated_high"] - part["calibrated_low"]) / 2 / part["calibrated"]
            z2 = (better / (width2 / 1.96)).pow(2).mean() ** 0.5
            joined = f"{error.mean():+7.2%} sd{error.std():6.2%}"
            calibrated = f"{better.mean():+8.2%} sd{better.std():6.2%}"
            print(f"  {name:11} {part['samples'].mean():7.0f} {joined} {calibrated}", end="")
            print(f" {width.mean():6.1%} {held:6.0%} {held2:9.0%} {z:8.2f} {z2:5.2f}")


if __name__ == "__main__":
    main()
