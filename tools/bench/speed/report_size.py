"""Measures time and memory of `lotus report`, its page and `lotus compare` for large runs.

    PYTHONPATH=. python tools/bench/speed/report_size.py [--events 10 40] [--batch 64] [--repeat 3]
        [--write FOLDER]

`--events` is in millions; 700 is 90 epochs of ImageNet with five operations a sample, and needs 11
GB of disk and the same of page cache. The logs are synthetic (large_runs.py), in a temporary
directory, read from the page cache; the run is compared with itself. Printed are wall and CPU
seconds, and the maximum resident set. `--write` adds the results to report_size.json and draws all
sizes in it. pyperf is not used because it does not measure CPU time.
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
from typing import Any

import numpy as np

from tools.bench import provenance
from tools.bench.large_runs import write_run
from tools.bench.speed import report_size_plot

COMMANDS = {
    "report": ["report", "{run}"],
    "page": ["report", "{run}", "--html", "{run}/report.html"],
    "comparison": ["compare", "{run}", "{run}"],
}


def measured(words: list[str], path: Path) -> tuple[float, float, int]:
    """Wall seconds, processor seconds and peak bytes of one command."""
    began = time.perf_counter()
    line = [word.format(run=path) for word in words]
    with subprocess.Popen(
        [sys.executable, "-m", "lotus", *line], stdout=subprocess.DEVNULL
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"lotus {words[0]} ended with {process.returncode}")
    wall_s = time.perf_counter() - began
    return wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def write(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Put the rows beside those of other sizes, and draw all."""
    path = folder / "report_size.json"
    rows_before = json.loads(path.read_text()) if path.exists() else []
    mine = {(row["command"], row["events"]) for row in rows}
    rows = [row for row in rows_before if (row["command"], row["events"]) not in mine] + rows
    rows.sort(key=lambda row: (row["command"], row["events"]))
    path.write_text(json.dumps(rows, indent=1) + "\n")
    report_size_plot.draw(rows, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=float, nargs="+", default=[10, 40])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    args = parser.parse_args()
    print(provenance.header(np))
    print(f"{'':10} {'events':>13} {'median':>8} {'max':>8} {'CPU':>8} {'peak':>8}")
    rows = []
    for millions in args.events:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run"
            events = write_run(path, int(millions * 1e6), args.batch)
            for name, words in COMMANDS.items():
                results = [measured(words, path) for _ in range(args.repeat)]
                wall, used, peak = zip(*results, strict=True)
                row = {"command": name, "events": events, "wall_s": statistics.median(wall)}
                row |= {"cpu_s": statistics.median(used), "peak_bytes": max(peak)}
                rows.append({**row, "commit": provenance.commit()})
                print(
                    f"{name:10} {events:13,} {row['wall_s']:6.1f} s {max(wall):6.1f} s"
                    f" {row['cpu_s']:6.1f} s {max(peak) / 1e6:5.0f} MB",
                    flush=True,
                )
    if args.write:
        write(args.write, rows)


if __name__ == "__main__":
    main()
