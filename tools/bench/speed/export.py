"""Measures `lotus export` of synthetic runs: seconds, peak memory, size of the file.

    python -m tools.bench.speed.export [--events N ...] [--batch N ...] [--format NAME ...]
        [options of pyperf]

A value is one `lotus export` process, its start included. The runs are those of large_runs.py, in a
temporary directory, read from the page cache. Printed for each format and size are the mean and
standard deviation of the seconds, the peak memory of the process, and the size of the file.
"""

import sys

from lotus.export.formats import FORMATS
from tools.bench import pyperf_runner


def main() -> None:
    runner = pyperf_runner.reader(
        "speed.export", 3, [1_000_000, 10_000_000], [128], lambda args: ["--format", *args.format]
    )
    runner.argparser.add_argument(
        "--format", nargs="+", default=list(FORMATS), choices=list(FORMATS)
    )
    args = pyperf_runner.parsed(runner)
    for name, path in pyperf_runner.runs(args):
        for kind in args.format:
            output = args.runs / f"{kind}{FORMATS[kind].ending}"
            words = ["-m", "lotus", "export", "-f", str(path), "--format", kind]
            command = [sys.executable, *words, "-o", str(output)]
            new_runner = runner.bench_command(f"{kind} of {name}", command)
            if new_runner is not None and not args.worker:
                files = [output] if output.is_file() else list(output.iterdir())
                size = sum(file.stat().st_size for file in files)
                peak = pyperf_runner.peak(new_runner, "command_max_rss")
                print(f"{size / 1e6:.0f} MB of file, peak {peak / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
