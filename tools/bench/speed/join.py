"""Measures how fast samples are joined to intervals, and the memory that takes.

    PYTHONPATH=. python tools/bench/speed/join.py [--samples 10000000] [--intervals 10000000]

The data are synthetic: 16 threads in 8 processes, each with fetches that contain samples of five
operations. Samples of perf are in order of time, as in a recording; a tenth of them belong to a
thread without intervals. Printed are samples per second and peak memory. The goal is 3 million
samples per second, in memory that does not grow with the samples.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from native_map.estimate import count_estimates, interval_join
from tools.bench import provenance

THREADS, OPERATIONS = 16, ("Loader", "Crop", "Flip", "ToTensor", "Normalize")
RUN_NS = 600 * 10**9


def intervals_of(count: int, seed: int = 1) -> pd.DataFrame:
    """About so many: per thread, fetches of 128 x 5 operations with small gaps between."""
    rng = np.random.default_rng(seed)
    each = max(count // THREADS * 640 // 641 // 640, 1)  # fetches a thread
    parts = []
    for thread in range(THREADS):
        edges = np.sort(rng.integers(0, RUN_NS, (each * 640) * 2))
        start, end = edges[0::2], edges[1::2]
        ops = {"start_ns": start, "end_ns": end, "operation": np.tile(np.arange(5), each * 128)}
        fetch = {"start_ns": start[::640], "end_ns": end[639::640], "operation": -1}
        part = pd.concat([pd.DataFrame(fetch), pd.DataFrame(ops)], ignore_index=True)
        part["pid"], part["tid"] = 100 + thread // 2, 100 + thread
        parts.append(part)
    table = pd.concat(parts, ignore_index=True)
    code = table["operation"].to_numpy()
    table["kind"] = pd.Categorical.from_codes((code < 0).astype(int), ["operation", "fetch"])
    table["operation"] = pd.Categorical.from_codes((code + 1), ["", *OPERATIONS])
    return table


def chunks(count: int, size: int):
    """The samples as a reader gives them, made on the way."""
    for low in range(0, count, size):
        rng = np.random.default_rng(low)
        rows = min(size, count - low)
        thread = rng.integers(0, THREADS, rows)
        spare = rng.random(rows) < 0.1
        time_ns = np.sort(rng.integers(RUN_NS * low // count, RUN_NS * (low + rows) // count, rows))
        samples = pd.DataFrame(
            {
                "time_ns": time_ns,
                "pid": (100 + thread // 2).astype(np.int32),
                "tid": (100 + thread + spare * 1000).astype(np.int32),
                "event": rng.integers(0, 2, rows).astype(np.int16),
                "period": np.full(rows, 1_003_009, np.uint64),
            }
        )
        libraries = pd.Index([f"lib{i}.so" for i in range(20)])
        names = pd.Index([f"function_{i}" for i in range(2000)])
        which = (2000 * rng.random(rows) ** 3).astype(np.int32)
        functions = pd.DataFrame(
            {
                "library": pd.Categorical.from_codes(which % 20, libraries),
                "function": pd.Categorical.from_codes(which, names),
            }
        )
        yield samples, functions


def peak() -> int:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def measure(samples: int, intervals: int) -> dict:
    """One run in this process: seconds of the join alone, of attribution, of adding up."""
    table = intervals_of(intervals)
    began = time.perf_counter()
    index = interval_join.index(table)
    durations = {"index": time.perf_counter() - began, "join": 0.0, "attribute": 0.0, "tally": 0.0}
    before = peak()
    tally = count_estimates.Tally(index, table, ["cycles", "cpu-clock"])
    for part, functions in chunks(samples, interval_join.CHUNK):
        marks = [time.perf_counter()]
        interval_join.join(part, index)
        marks.append(time.perf_counter())
        attributed = index.attribute(part)
        marks.append(time.perf_counter())
        tally.add(part, attributed, functions)
        marks.append(time.perf_counter())
        for name, lasted in zip(("join", "attribute", "tally"), np.diff(marks), strict=True):
            durations[name] += float(lasted)
    return {**durations, "intervals": len(table), "index_peak": before, "peak": peak()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--intervals", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.samples, args.one)))
        return
    print(provenance.header(np))
    for intervals in args.intervals:
        results = []
        for _ in range(args.repeat):
            command = [sys.executable, os.path.abspath(__file__), "--one", str(intervals)]
            command += ["--samples", str(args.samples)]
            completed = subprocess.run(command, check=True, capture_output=True, text=True)
            results.append(json.loads(completed.stdout))
        print(f"{args.samples:,} samples, {results[0]['intervals']:,} intervals, {THREADS} threads")
        for name in ("index", "join", "attribute", "tally"):
            seconds = [result[name] for result in results]
            median = statistics.median(seconds)
            rate = "" if name == "index" else f"{args.samples / median / 1e6:8.1f} M samples/s"
            print(f"  {name:10} {median:6.2f} s ({min(seconds):.2f} to {max(seconds):.2f}){rate}")
        grown = max(result["peak"] - result["index_peak"] for result in results)
        print(f"  peak {max(r['peak'] for r in results) / 1e9:.2f} GB,", end=" ")
        print(f"of which {grown / 1e9:.2f} GB after the index was built")


if __name__ == "__main__":
    main()
