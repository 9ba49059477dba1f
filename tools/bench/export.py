"""Writes synthetic runs in the formats of `lotus export`: seconds, peak memory, size of the file.

    python -m tools.bench.export [--events N ...] [--format perfetto ...] [options of pyperf]

Every value is of `lotus export` as a user types it, with its start. Runs are those of large_runs.py
(batches of 128), in a temporary directory, read from the page cache. Peak memory is that of the
process. It judges nothing: it prints.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from lotus.export.formats import FORMATS
from tools.bench import pyperf_runner


def main() -> None:
    runner = pyperf_runner.runner(
        "export",
        processes=3,
        hand_on=lambda args: [
            *("--runs", args.runs, "--batch", args.batch),
            *("--events", *args.events, "--format", *args.format),
        ],
    )
    add = runner.argparser.add_argument
    add("--events", type=int, nargs="+", default=[1_000_000, 10_000_000])
    add("--batch", type=int, default=128)
    add("--format", nargs="+", default=list(FORMATS), choices=list(FORMATS))
    add("--runs", type=Path, help=argparse.SUPPRESS)
    args = pyperf_runner.parsed(runner)
    with tempfile.TemporaryDirectory() as folder:
        if not args.worker:
            args.runs = Path(folder)
        for events in args.events:
            path = args.runs / f"run-{events}"
            if not args.worker:
                pyperf_runner.written(path, events, args.batch)
            for kind in args.format:
                output = args.runs / f"{kind}{FORMATS[kind].ending}"
                words = ["-m", "lotus", "export", "-f", str(path), "--format", kind]
                command = [sys.executable, *words, "-o", str(output)]
                made = runner.bench_command(f"{kind} of {events:,} events", command)
                if made is not None and not args.worker:
                    files = [output] if output.is_file() else list(output.iterdir())
                    size = sum(file.stat().st_size for file in files)
                    peak = pyperf_runner.peak(made, "command_max_rss")
                    print(f"{size / 1e6:.0f} MB of file, peak {peak / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
