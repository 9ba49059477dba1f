"""How long `lotus report` of a large run takes, and in how much memory.

    PYTHONPATH=. python tools/bench/report_size.py [--events 10 40] [--batch 64] [--repeat 3]

`--events` is in millions; 700 is 90 epochs of ImageNet with five operations a sample, and needs 11
GB of disk and as much of page cache. The logs are synthetic, as of `reading.py`, lie in a temporary
directory and are read from the page cache. Memory is the largest resident set. It judges nothing:
it prints.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tools.bench import provenance
from tools.bench.reading import write_run


def report(path: Path) -> tuple[float, float, int]:
    """Wall seconds, processor seconds and peak bytes of one report."""
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "lotus", "report", str(path)], stdout=subprocess.DEVNULL
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"lotus report ended with {process.returncode}")
    took = time.perf_counter() - began
    return took, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=float, nargs="+", default=[10, 40])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    print(provenance.header(np))
    print(
        f"{'events':>13} {'batches':>9} {'log':>8} {'median':>8} {'max':>8} {'CPU':>8} {'peak':>8}"
    )
    for millions in args.events:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run"
            events = write_run(path, int(millions * 1e6), args.batch)
            log = sum(file.stat().st_size for file in (path / "events").iterdir())
            wall, used, peak = zip(*(report(path) for _ in range(args.repeat)), strict=True)
        print(
            f"{events:13,} {events // (6 * args.batch):9,} {log / 1e6:5.0f} MB"
            f" {statistics.median(wall):6.1f} s {max(wall):6.1f} s {statistics.median(used):6.1f} s"
            f" {max(peak) / 1e6:5.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
