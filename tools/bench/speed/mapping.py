"""Measures the speed and peak memory of `lotus map` on one recorded file.

    PYTHONPATH=. python tools/bench/speed/mapping.py [--samples 1500000] [--repeat 3] [--file FILE]

perf records the file as in perf_data.py: several processes, two events, a library that is mapped
mid-run, fork and exit. Each thread has intervals like those of a traced run: fetches of 10 ms with
operations of 0.2 to 2 ms, with gaps. Printed are the seconds of reading, naming, joining and
summing, each repetition in a process of its own. It fails if a sample is not accounted for.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from native_map.estimate import count_estimates, interval_join
from native_map.recording import perf_data, perf_recording
from native_map.symbols.symbolizer import Symbols
from tools.bench import provenance
from tools.bench.speed.perf_data import peak_bytes, record

CHUNK = 1 << 20
FETCH_NS = 10_000_000
NAMES = ("Loader", "RandomResizedCrop", "RandomHorizontalFlip", "ToTensor", "Normalize")
PARTS = (0.45, 0.65, 0.67, 0.8, 0.95)  # of a fetch at which each operation ends


def intervals(recording: perf_recording.PerfRecording) -> pd.DataFrame:
    """Fetches, and operations within, over the time in which each thread was sampled."""
    spans = [
        chunk.groupby(["pid", "tid"])["time_ns"].agg(["min", "max"])
        for chunk in recording.chunks(CHUNK)
    ]
    whole = pd.concat(spans).groupby(["pid", "tid"]).agg({"min": "min", "max": "max"})
    tables = []
    for (pid, tid), (first, last) in zip(whole.index, whole.to_numpy(), strict=True):
        starts = np.arange(first, last, FETCH_NS)
        edges = [0.02, *PARTS]
        for place, name in enumerate(("", *NAMES)):
            begin = starts if not name else starts + int(edges[place - 1] * FETCH_NS)
            end = starts + (FETCH_NS - 50_000 if not name else int(edges[place] * FETCH_NS) - 1000)
            kind = "operation" if name else "fetch"
            tables.append(
                pd.DataFrame({"start_ns": begin, "end_ns": end}).assign(
                    pid=pid, tid=tid, kind=kind, operation=name, worker=0, row=-1
                )
            )
    table = pd.concat(tables, ignore_index=True)
    return table.astype({"kind": "category", "operation": "category"})


def once(path: str) -> None:
    """Child process: the whole chain; prints its times as JSON."""
    recording = perf_data.read(path)
    table = intervals(recording)
    recording = None
    before = peak_bytes()
    spent = dict.fromkeys(("read", "index", "name", "join", "sum"), 0.0)
    mark = [time.perf_counter(), time.process_time()]
    began = list(mark)

    def lap(name: str) -> None:
        now = time.perf_counter()
        spent[name] += now - mark[0]
        mark[0] = now

    recording = perf_data.read(path)
    lap("read")
    index = interval_join.index(table)
    tally = count_estimates.Tally(index, table, recording.events)
    symbols = Symbols()
    lap("index")
    for chunk in recording.chunks(CHUNK):
        lap("read")
        attributed = index.attribute(chunk)
        lap("join")
        functions = symbols.resolve(recording.mappings, chunk, recording.forks, recording.comms)
        lap("name")
        attributed["kind"] = interval_join.classify(attributed, functions)
        tally.add(chunk, attributed, functions)
        lap("sum")
    sums = tally.table()
    lap("sum")
    took, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
    reconciled = interval_join.sample_reconciliation(
        sums, dict(zip(recording.events, recording.sampled, strict=True))
    )
    print(
        json.dumps(
            {
                "samples": len(recording),
                "intervals": len(table),
                "seconds": took,
                "cpu_s": cpu,
                "spent": spent,
                "missing": int(reconciled["missing"].abs().sum()),
                "attributed": int(reconciled["attributed"].sum()),
                "peak_bytes": peak_bytes(),
                "before_bytes": before,
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=1_500_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--file", type=Path, help="read this one instead of recording")
    parser.add_argument("--once", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        once(args.once)
        return
    print(f"machine  {provenance.cpus()}, load {os.getloadavg()[0]:.1f};", end=" ")
    print(f"Python {sys.version.split()[0]}, pandas {pd.__version__}")
    print(f"commit   {provenance.commit()}, {time.strftime('%Y-%m-%d')}")
    with tempfile.TemporaryDirectory() as name:
        path = args.file or record(Path(name), args.samples)
        command = [sys.executable, os.path.abspath(__file__), "--once", str(path)]
        rounds = [
            json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for _ in range(args.repeat)
        ]
        size = path.stat().st_size
    first = rounds[0]
    print(f"file     {size / 1e6:.0f} MB, {first['samples']:,} samples, ", end="")
    print(f"{first['intervals']:,} intervals")
    for label, key in (("wall", "seconds"), ("processor", "cpu_s")):
        rates = sorted(run["samples"] / run[key] / 1e6 for run in rounds)
        print(
            f"{label:9} {statistics.median(rates):.2f} M samples/s in all "
            f"({rates[0]:.2f} to {rates[-1]:.2f} in {len(rates)} rounds)"
        )
    for part in first["spent"]:
        times = sorted(run["spent"][part] for run in rounds)
        print(f"  {part:6} {statistics.median(times):.3f} s ({times[0]:.3f} to {times[-1]:.3f})")
    peak = max(run["peak_bytes"] for run in rounds) / 1e6
    before = max(run["before_bytes"] for run in rounds) / 1e6
    print(f"memory   {peak:.0f} MB at most, {before:.0f} MB of it before (Python, intervals)")
    missing = sum(run["missing"] for run in rounds)
    print(f"books    {first['attributed']:,} attributed; missing {missing}")
    if missing:
        raise SystemExit("samples are unaccounted for")


if __name__ == "__main__":
    main()
