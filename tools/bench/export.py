"""Writes synthetic runs in the formats of `lotus export`: seconds, peak memory, size of the file.

    python -m tools.bench.export [--events N ...] [--format perfetto ...] [--repeat 3]

Every export is a process of its own, as `lotus export` is; imports are in the seconds. Runs are
those of tools/bench/reading.py (5 operations a sample, 4 workers, batches of 128), in a temporary
directory, read from the page cache. Peak memory is the process's own (VmHWM). It judges nothing:
it prints.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from lotus.export.formats import FORMATS
from tools.bench import provenance
from tools.bench.reading import write_run


def export(path: str, format: str, output: str) -> None:
    """Child process: export the run and print what it took, as JSON."""
    began = time.perf_counter()
    from lotus.export import formats
    from lotus.export.export_request import ExportRequest
    from lotus.reading.run import load

    formats.export(load(path), ExportRequest(format, Path(output)), lambda done, whole: None)
    seconds = time.perf_counter() - began
    status = Path("/proc/self/status").read_text()
    peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    print(json.dumps({"seconds": seconds, "peak_bytes": int(peak) * 1024}))


def measure(path: Path, format: str, output: Path, repeat: int) -> tuple[list[dict], int]:
    results, size = [], 0
    for number in range(repeat):
        own = output / f"{format}-{number}{FORMATS[format].ending}"
        words = [
            sys.executable,
            "-m",
            "tools.bench.export",
            "--export",
            str(path),
            format,
            str(own),
        ]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        results.append(json.loads(done.stdout))
        files = [own] if own.is_file() else sorted(own.iterdir())
        size = sum(file.stat().st_size for file in files)
        for file in files:
            file.unlink()
    return results, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--format", nargs="+", default=list(FORMATS), choices=list(FORMATS))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--export", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.export:
        export(*args.export)
        return
    print(provenance.header(np, f"; batches of {args.batch}"))
    print(
        f"{'format':>10} {'events':>11} {'median':>8} {'min':>8} {'max':>8} {'peak':>8} {'size':>9}"
    )
    for events in args.events:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run"
            written = write_run(path, events, args.batch)
            for format in args.format:
                results, size = measure(path, format, Path(folder), args.repeat)
                seconds = [result["seconds"] for result in results]
                peak = max(result["peak_bytes"] for result in results)
                print(
                    f"{format:>10} {written:11,} {statistics.median(seconds):6.1f} s"
                    f" {min(seconds):6.1f} s {max(seconds):6.1f} s {peak / 1e6:5.0f} MB"
                    f" {size / 1e6:6.0f} MB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
