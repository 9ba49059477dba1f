"""Measures seconds and peak memory of reading a large run into `ops`, `samples` and `batches`.

    python -m tools.bench.speed.reading [--events 10000000 ...] [--batch 128 32 1]
        [options of pyperf]

Each value is that of a process of its own, without its imports; peak memory is the process's. The
runs are those of large_runs.py, in a temporary directory, read from the page cache. Printed are the
mean and the standard deviation. The goal is 10 million events of batches of 128 in 5 s and 2 GB.
"""

import time
from pathlib import Path

from tools.bench import pyperf_runner

TABLES = ("ops", "samples", "batches")


def read(loops: int, path: Path) -> float:
    """Return seconds to read the tables of a run."""
    from lotus.reading.run import load

    seconds = 0.0
    for _ in range(loops):
        began = time.perf_counter()
        run = load(path)
        for name in TABLES:
            getattr(run, name)
        seconds += time.perf_counter() - began
    return seconds


def main() -> None:
    runner = pyperf_runner.reader("speed.reading", 5, [10_000_000], [128, 32, 1])
    args = pyperf_runner.parsed(runner)
    for name, path in pyperf_runner.runs(args):
        new_runner = runner.bench_time_func(name, read, path)
        if new_runner is not None and not args.worker:
            log = sum(file.stat().st_size for file in (path / "events").iterdir())
            print(f"{log / 1e6:.0f} MB of logs, peak {pyperf_runner.peak(new_runner) / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
