"""Measures what `lotus trace --counters` adds to the cost of tracing.

    PYTHONPATH=. python tools/bench/overhead/counters.py [--pipeline image tiny] [--runs 3]
        [--counters auto]

Time: the number of readings per sample times the duration of a reading (measured when the counters
are opened), in % of the wall time of the sample's fetch. Instructions: of the same fetches of a
data set that does nothing, with and without counters, counted by `perf stat` if the machine has
counters, else by valgrind; printed beside those of the pipeline itself. No wall times are compared.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lotus.format.manifest import TraceSettings
from lotus.inside.common import perf_event
from lotus.reading.run import Run, load
from lotus.recording import measurement_plan, program_environment
from lotus.workloads import jpegs
from tools.bench import provenance
from tools.bench.overhead.exact import has_counters, measure, pipelines
from tools.bench.overhead.hooks import BATCH, counter, of_a_batch


def trace(command: Sequence[str], folder: Path, plan: measurement_plan.MeasurementPlan) -> Run:
    """Run it with counters; its hooks alone, without `lotus trace` around it."""
    folder.mkdir()
    settings = TraceSettings(counters=plan.counters)
    environ = program_environment.with_tracing(os.environ, folder, settings)
    subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=True)
    (folder / "run.json").write_text('{"schema": 1, "state": "ended"}')
    return load(folder)


def by_time(run: Run) -> tuple[float, float, float, float]:
    """(readings a sample, ns a reading, us a sample, share of the time of fetches)."""
    counters = run.counters
    fetch = counters[counters["kind"] == "fetch"]
    costs_ns = [
        float(event["read_ns"])
        for process in run._assembly.processes
        for event in process.events["counters"]
    ]
    size = run.batches.loc[run.batches["fetch_ns"].notna(), "size"].sum()
    # The first reading of a fetch costs its time too.
    readings = float(fetch["readings"].sum() + len(fetch)) / size
    cost = statistics.median(costs_ns)
    a_sample = float(fetch["duration_ns"].sum()) / size
    return readings, cost, a_sample / 1000, readings * cost / a_sample


def instructions(plan: measurement_plan.MeasurementPlan, batches: int) -> tuple[float, float]:
    """Instructions a sample of two operations, traced without and with counters."""
    words, costs = counter(), []
    for spec in ("", plan.counters or ""):
        os.environ["LOTUS_COUNTERS"] = spec
        costs.append(of_a_batch("op", batches, words) / BATCH)
    del os.environ["LOTUS_COUNTERS"]
    return costs[0], costs[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pipeline", nargs="+", choices=["image", "tiny"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--batches", type=int, default=500, help="for counting instructions")
    parser.add_argument("--counters", default="auto")
    parser.add_argument("--scale", type=float, default=1.0, help="how much each pipeline does")
    args = parser.parse_args()
    plan = measurement_plan.plan(args.counters)
    for note in plan.notes:
        print(note)
    if plan.counters is None:
        raise SystemExit("nothing can be counted here")
    groups = perf_event.parse_groups(plan.counters)
    print(f"{provenance.cpus()}, commit {provenance.commit()}")
    names = "; ".join(", ".join(event.name for event in group) for group in groups)
    print(f"Python {sys.version.split()[0]}, counting {names}")
    more = float("nan")
    if counter():
        without, with_counters = instructions(plan, args.batches)
        more = with_counters - without
        print(
            f"a sample of two operations that do nothing: {without:,.0f} instructions traced, "
            f"{more:+,.0f} with counters, by {counter()[0]}"
        )
    else:
        print("no instructions: neither a perf counter nor valgrind")
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images"
        for _ in jpegs.make(images, 256):
            pass
        for name, command in pipelines(images, args.scale, 1).items():
            if args.pipeline and name not in args.pipeline:
                continue
            runs = [trace(command, Path(folder) / f"{name}{n}", plan) for n in range(args.runs)]
            parts = np.array([by_time(run) for run in runs])
            readings, cost, a_sample, _ = np.median(parts, axis=0)
            share = parts[:, 3]
            print(
                f"{name:6} {readings:.2f} readings of {cost / 1000:.2f} us in a sample of "
                f"{a_sample:,.0f} us: {np.median(share):.2%} of its time "
                f"(median of {len(runs)}, {share.min():.2%} to {share.max():.2%})",
                flush=True,
            )
            if has_counters():
                plain = [measure(command, dict(os.environ), "perf")[0] for _ in range(args.runs)]
                samples = int(runs[0].batches["size"].sum())
                own = statistics.median(plain) / samples
                # Readings scale with operations: two of them in the empty data set.
                operations = len(runs[0].ops) / samples
                print(f"       {more * operations / 2 / own:.2%} of its {own:,.0f} instructions")


if __name__ == "__main__":
    main()
