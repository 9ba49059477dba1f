"""Measures what lotus and other tools cost six training scripts.

    PYTHONPATH=. python tools/bench/overhead/comparison.py [OPTION]

    (none)    the full run: 80 minutes on two free cores; started again, it continues
    --quick   everything once, small, in 10 to 16 minutes
    --report  the tables and pictures of what was measured so far
    --exact   user instructions of lotus alone, by valgrind

The scripts are those of `lotus demo`, with its options: two workers, one thread for the model, and
a warm page cache (their files are read again before each round). In each round each tool runs once
on each script, in random order; with a run without a tool it forms a pair. Printed is the median of
the pairs' ratios, with an interval that contains the true median with 95 % probability or more
(table.py). The first round is a warm-up, in which only memory is measured. `nothing again`
is a second run without a tool: differences no larger than its are not resolved.

- wall: the whole process, from its start to its end, including imports and the tool's own start and
  end.
- loop: the time of the epochs as the script prints it, without start and post-processing.
- CPU: user and system time of all processes, those of the tool included.
- instructions: in user space, by `perf stat`, if the machine has counters.
- memory: the maximum of the sum of the processes' proportional set sizes (command_resources.py).
- bytes: the size of what the tool writes, per sample.

The tools are those that are installed beside this Python or on PATH; for the others the command
that installs them is printed. Each tool's output is checked after each run: a tool that recorded
nothing has failed.
"""

import argparse
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lotus.common.machine import host
from lotus.workloads.catalogue import FOLDER, WORKLOADS
from tools.bench import provenance
from tools.bench.measurements import RESULTS, Measurements, stoppable
from tools.bench.overhead import compared_tools, exact, plot, table
from tools.bench.overhead.compared_tools import BASE, TOOLS, Tool

HERE = Path(__file__).parent
# Samples of each workload, for a loop of about two seconds on two cores.
FULL = {
    "image_classification": 384,
    "segmentation": 24,
    "detection": 192,
    "audio": 192,
    "text": 4000,
    "tiny_images": 20_000,
}
QUICK = {
    "image_classification": 96,
    "segmentation": 8,
    "detection": 48,
    "audio": 48,
    "text": 800,
    "tiny_images": 4000,
}
EPOCH = re.compile(r"^epoch (\d+): loss (\S+), (\d+) \w+ in ([\d.]+) s, ([\d.]+) \w+/s", re.M)


@dataclass
class Row:
    """One measurement: a line of overhead.csv. Round 0 warms up, its times do not count."""

    round: int
    workload: str
    tool: str
    failed: str = ""  # why, or the last line that it printed
    wall_s: float | None = None
    loop_s: float | None = None
    cpu_s: float | None = None
    instructions: float | None = None
    peak_bytes: int | None = None
    output_bytes: int | None = None
    samples: int | None = None
    loss: str = ""
    records: int | None = None
    unit: str = ""
    workers: int | None = None
    note: str = ""
    late_s: float | None = None
    commit: str = ""
    at: str = ""


def loop_of(text: str) -> tuple[float, int, str]:
    """Return (seconds, samples, last loss) of the epochs that a script printed.

    Seconds have one decimal and the rate is rounded as well: what both allow is narrower than each.
    """
    seconds, samples, loss = 0.0, 0, ""
    epochs = {match[1]: match for match in EPOCH.finditer(text)}
    for match in epochs.values():
        count, took, rate = int(match[3]), float(match[4]), float(match[5])
        unit = 10.0 ** -len(match[5].partition(".")[2])
        low = max(took - 0.05, count / (rate + unit / 2))
        high = min(took + 0.05, count / max(rate - unit / 2, 1e-9))
        seconds += (low + high) / 2 if low <= high else took
        samples += count
        loss = match[2]
    return seconds, samples, loss


def counted(text: str) -> float | None:
    """Return the count of `perf stat -x,`; None if it did not count all the time."""
    match = re.search(r"^(\d+),[^,]*,instructions[^,]*,\d+,([\d.]+)", text, re.M)
    return float(match[1]) if match and float(match[2]) >= 99.9 else None


def data_of(name: str, count: int, cache: Path) -> Path:
    """Make the data of a workload unless they exist."""
    workload = WORKLOADS[name]
    folder = cache / workload.folder(count)
    make = [sys.executable, str(FOLDER / "making.py"), workload.maker, str(folder)]
    subprocess.run([*make, "--count", str(count)], check=True, stdout=subprocess.DEVNULL)
    return folder


def warm(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            path.read_bytes()


def environ() -> dict[str, str]:
    """Return the environment of programs: modules are compiled once, no other lotus is visible."""
    leave = ("LOTUS_", "TRACEML", "PYTHONDONTWRITEBYTECODE", "OMP_NUM_THREADS")
    return {name: value for name, value in os.environ.items() if not name.startswith(leave)}


class Bench:
    def __init__(self, args: argparse.Namespace, counted: bool) -> None:
        self.args = args
        self.counted = counted
        self.sizes = {
            name: size * args.scale for name, size in (QUICK if args.quick else FULL).items()
        }
        self.commit = provenance.commit()

    def arguments(self, name: str) -> list[str]:
        data = data_of(name, self.sizes[name], self.args.data)
        options = ["--data", str(data), "--batch-size", str(WORKLOADS[name].batch_size)]
        return [*options, "--workers", str(self.args.workers), "--threads", "1"]

    def measure(self, number: int, name: str, tool: Tool, memory: bool) -> Row:
        row = Row(number, name, tool.name, commit=self.commit, at=time.strftime("%F %T"))
        with tempfile.TemporaryDirectory(prefix="lotus-overhead-") as folder:
            out = Path(folder) / "out"
            out.mkdir()
            script = str(WORKLOADS[name].script)
            words = tool.words(sys.executable, script, self.arguments(name), out)
            counts, printed = Path(folder) / "counts", Path(folder) / "printed"
            if self.counted:
                stat = ["perf", "stat", "-x,", "-e", "instructions:u", "-o", str(counts), "--"]
                words = [*stat, *words]
            run = [sys.executable, str(HERE / "command_resources.py"), "--stdout", str(printed)]
            run += ["--limit", str(self.args.limit), *["--memory"] * memory, "--", *words]
            completed = subprocess.run(
                run, cwd=folder, env=environ(), capture_output=True, text=True, check=True
            )
            usage = json.loads(completed.stdout.splitlines()[-1])
            text = printed.read_text(errors="replace")
            row.failed = failure(usage, text)
            if row.failed:
                return row
            row.wall_s, row.cpu_s, row.late_s = usage["wall_s"], usage["cpu_s"], usage["late_s"]
            row.peak_bytes = usage["peak_bytes"]
            row.loop_s, row.samples, row.loss = loop_of(text)
            if row.samples != self.sizes[name]:
                row.failed = f"the script went through {row.samples} samples of {self.sizes[name]}"
            if self.counted:
                row.instructions = counted(counts.read_text())
            files_left = [path for path in out.rglob("*") if path.is_file()]
            row.output_bytes = sum(path.stat().st_size for path in files_left)
            try:
                seen = tool.look(out, text)
            except Exception as error:
                row.failed = f"its output has nothing of the run: {type(error).__name__}: {error}"
            else:
                row.records, row.unit = seen.records, seen.unit
                row.workers, row.note = seen.workers, seen.note
        return row

    def plan(self, tools: list[Tool]) -> list[tuple[int, str, Tool]]:
        """Return all measurements in order, which is the same for the same seed."""
        shuffle = random.Random(self.args.seed)
        rounds = [1] if self.args.quick else range(self.args.pairs + 1)
        plan = []
        for number in rounds:
            for name in shuffle.sample(self.args.workload, len(self.args.workload)):
                plan += [(number, name, tool) for tool in shuffle.sample(tools, len(tools))]
        return plan

    def run(self, tools: list[Tool], results: Measurements[Row]) -> None:
        """Make the missing measurements, and append each of them at once."""
        rows = results.read()
        existing = {(row.round, row.workload, row.tool) for row in rows}
        plan = self.plan(tools)
        remaining = [job for job in plan if (job[0], job[1], job[2].name) not in existing]
        if existing:
            print(f"{len(plan) - len(remaining)} of {len(plan)} measurements are there", flush=True)
        durations: dict[tuple[str, str], list[float]] = {}
        failures = {(row.workload, row.tool): row.failed for row in rows if row.failed}
        warmed = None
        results.write(rows)
        started = time.monotonic()
        for place, (number, name, tool) in enumerate(remaining, 1):
            if time.monotonic() - started > self.args.minutes * 60:
                raise SystemExit(f"{len(remaining) - place + 1} measurements remain")
            if warmed != (number, name):
                warm(data_of(name, self.sizes[name], self.args.data))
                warmed = (number, name)
            began = time.perf_counter()
            before = failures.get((name, tool.name))
            if before and number > 1:  # it has failed twice, or is not worth its time limit
                row = Row(number, name, tool.name, before, commit=self.commit)
            else:
                row = self.measure(number, name, tool, memory=number == 0 or self.args.quick)
            if row.failed:
                failures[name, tool.name] = row.failed
            results.append(row)
            durations.setdefault((name, tool.name), []).append(time.perf_counter() - began)
            rest = estimate(durations, [(job[1], job[2].name) for job in remaining[place:]])
            outcome = f"failed: {row.failed[:90]}" if row.failed else f"{row.wall_s:.2f} s"
            print(
                f"[{place}/{len(remaining)}, {rest / 60:.0f} min left] round {number} {name} "
                f"under {tool.name}: {outcome}",
                flush=True,
            )


def failure(usage: dict[str, Any], text: str) -> str:
    """Return why a run failed, "" if it did not."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = re.sub(r"\x1b\[[0-9;]*m", "", lines[-1]) if lines else "it printed nothing"
    if usage["killed"]:
        return f"{usage['killed']}; last line: {last}"
    return f"exit code {usage['status']}; last line: {last}" if usage["status"] else ""


def estimate(
    durations: dict[tuple[str, str], list[float]], remaining: list[tuple[str, str]]
) -> float:
    """Return the expected seconds of the remaining measurements, from those made."""
    every = [second for seconds in durations.values() for second in seconds]
    usual = sum(every) / len(every)
    means = {key: sum(seconds) / len(seconds) for key, seconds in durations.items()}
    return sum(means.get(key, usual) for key in remaining)


def facts(bench: Bench, tools: list[Tool], absent: dict[str, str]) -> dict[str, Any]:
    """Return the conditions of the measurements, which must be the same to continue them."""
    import torch

    return {
        "machine": {**provenance.machine(), "memory_bytes": host.facts()["memory_bytes"]},
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "sizes": bench.sizes,
        "workers": bench.args.workers,
        "seed": bench.args.seed,
        "quick": bench.args.quick,
        "instructions": bench.counted,
        "tools": {tool.name: compared_tools.version(tool) for tool in tools},
        "not_run": absent,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="all once, small, in 10 to 16 minutes")
    parser.add_argument("--report", action="store_true", help="measure nothing, write the tables")
    parser.add_argument("--exact", action="store_true", help="count instructions by valgrind")
    parser.add_argument("--fresh", action="store_true", help="throw away what was measured")
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--tool", nargs="+", choices=[tool.name for tool in TOOLS])
    parser.add_argument("--pairs", type=int, default=7, help="of each tool and workload (7)")
    parser.add_argument("--scale", type=int, default=1, help="N times as many samples (1)")
    parser.add_argument("--workers", type=int, default=2, help="of each loader (2)")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for one run (240)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so many")
    parser.add_argument("--seed", type=int, default=0, help="of the order (0)")
    parser.add_argument("-o", "--output", type=Path, help="folder of the results")
    parser.add_argument("--data", type=Path, default=Path.home() / ".cache" / "lotus")
    args = parser.parse_args()
    if args.output is None:
        quick = Path(tempfile.gettempdir()) / "lotus-overhead-quick"
        args.output = quick if args.quick else RESULTS
    return args


def main() -> None:
    args = arguments()
    args.output.mkdir(parents=True, exist_ok=True)
    if args.exact:
        print(exact.compare(args, args.output / "overhead_exact.txt"))
        return
    results = Measurements(args.output, "overhead", Row)
    if not args.report:
        chosen = [tool for tool in TOOLS if not args.tool or tool.name in (*args.tool, BASE)]
        reasons = {tool.name: compared_tools.missing(tool) for tool in chosen}
        absent = {name: why for name, why in reasons.items() if why}
        for name, why in absent.items():
            print(f"not run: {name}: {why}")
        tools = [tool for tool in chosen if tool.name not in absent]
        bench = Bench(args, compared_tools.counts() and shutil.which("perf") is not None)
        conditions_now = facts(bench, tools, absent)
        if args.fresh or args.quick:
            results.throw_away()
        elif results.csv.exists():
            results.must_be_of(results.known(), conditions_now)
        results.know(conditions_now)
        with stoppable():
            bench.run(tools, results)
    conditions, rows = results.known(), results.read()
    cells = table.cells(rows)
    text = table.text(conditions, rows, cells)
    drawn = plot.draw(conditions, cells, args.output)
    results.show(text, table.markdown(conditions, rows, cells), drawn)


if __name__ == "__main__":
    main()
