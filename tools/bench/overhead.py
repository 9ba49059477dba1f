"""What lotus and the tools that people use instead cost, side by side, on six training scripts.

    python tools/bench/overhead.py              the full run: 80 minutes on two free cores;
                                                started again, it goes on where it was stopped
    python tools/bench/overhead.py --quick      everything once, small, in 10 to 16 minutes
    python tools/bench/overhead.py --report     the tables and pictures of what was measured so far
    python tools/bench/overhead.py --exact      user instructions of lotus alone, by valgrind

The workloads are those of `lotus demo`, run as it runs them: two workers, one thread for the model,
from a warm page cache (their files are read once more before each round). In each round each tool
runs once on each workload, in random order, beside a run under nothing: these make a pair, and what
is given is the median of the pairs' ratios with an interval that holds the true median with at
least 95 % (overhead_table.py). A first round, whose times do not count, warms up and looks at the
memory. `nothing again` is the noise: what is no larger is not resolved.

- wall: the whole process, from its start to its end: imports, the tool's start and its last word.
- loop: what the script prints as its epochs' own time, so that start and post-processing stand
  apart.
- CPU: user and system time of the whole tree of processes, the tool's own among them.
- instructions: in user space, by `perf stat`, where the machine counts them.
- memory: the largest sum of the proportional set sizes of the tree (overhead_run.py).
- bytes: all that the tool left, for each sample.

Which tools run is a matter of what is installed beside this Python or on PATH; the others are
listed, with the command that installs them. Each tool's output is read after each run: a tool that
left nothing of the run has failed. It judges nothing: it prints.
"""

import argparse
import json
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

import overhead_exact
import overhead_plot
import overhead_table
import overhead_tools
import provenance
from measurements import Measurements, stoppable
from overhead_exact import has_counters, measure, pipelines  # noqa: F401  (for counters.py)
from overhead_tools import BASE, TOOLS, Tool

from lotus.common import host
from lotus.workloads.catalogue import FOLDER, WORKLOADS

HERE = Path(__file__).parent
RESULTS = HERE / "results"
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
    """Return what `perf stat -x,` counted; None where it did not count all the time."""
    match = re.search(r"^(\d+),[^,]*,instructions[^,]*,\d+,([\d.]+)", text, re.M)
    return float(match[1]) if match and float(match[2]) >= 99.9 else None


def data_of(name: str, count: int, cache: Path) -> Path:
    """Make the data of a workload, where they are not there yet."""
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
    """What the programs get: modules are compiled once, and nothing of another lotus is left."""
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
            run = [sys.executable, str(HERE / "overhead_run.py"), "--stdout", str(printed)]
            run += ["--limit", str(self.args.limit), *["--memory"] * memory, "--", *words]
            done = subprocess.run(
                run, cwd=folder, env=environ(), capture_output=True, text=True, check=True
            )
            taken = json.loads(done.stdout.splitlines()[-1])
            text = printed.read_text(errors="replace")
            row.failed = failure(taken, text)
            if row.failed:
                return row
            row.wall_s, row.cpu_s, row.late_s = taken["wall_s"], taken["cpu_s"], taken["late_s"]
            row.peak_bytes = taken["peak_bytes"]
            row.loop_s, row.samples, row.loss = loop_of(text)
            if row.samples != self.sizes[name]:
                row.failed = f"the script went through {row.samples} samples of {self.sizes[name]}"
            if self.counted:
                row.instructions = counted(counts.read_text())
            left = [path for path in out.rglob("*") if path.is_file()]
            row.output_bytes = sum(path.stat().st_size for path in left)
            try:
                seen = tool.look(out, text)
            except Exception as error:
                row.failed = f"its output has nothing of the run: {type(error).__name__}: {error}"
            else:
                row.records, row.unit = seen.records, seen.unit
                row.workers, row.note = seen.workers, seen.note
        return row

    def plan(self, tools: list[Tool]) -> list[tuple[int, str, Tool]]:
        """Return all measurements in order: the same for the same seed, however often begun."""
        shuffle = random.Random(self.args.seed)
        rounds = [1] if self.args.quick else range(self.args.pairs + 1)
        plan = []
        for number in rounds:
            for name in shuffle.sample(self.args.workload, len(self.args.workload)):
                plan += [(number, name, tool) for tool in shuffle.sample(tools, len(tools))]
        return plan

    def run(self, tools: list[Tool], kept: Measurements[Row]) -> None:
        """Make the measurements that are not there yet, and append each when it is made."""
        rows = kept.read()
        done = {(row.round, row.workload, row.tool) for row in rows}
        plan = self.plan(tools)
        left = [job for job in plan if (job[0], job[1], job[2].name) not in done]
        if done:
            print(f"{len(plan) - len(left)} of {len(plan)} measurements are there", flush=True)
        took: dict[tuple[str, str], list[float]] = {}
        failures = {(row.workload, row.tool): row.failed for row in rows if row.failed}
        warmed = None
        kept.write(rows)
        for place, (number, name, tool) in enumerate(left, 1):
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
            kept.append(row)
            took.setdefault((name, tool.name), []).append(time.perf_counter() - began)
            rest = estimate(took, [(job[1], job[2].name) for job in left[place:]])
            outcome = f"failed: {row.failed[:90]}" if row.failed else f"{row.wall_s:.2f} s"
            print(
                f"[{place}/{len(left)}, {rest / 60:.0f} min left] round {number} {name} "
                f"under {tool.name}: {outcome}",
                flush=True,
            )


def failure(taken: dict[str, Any], text: str) -> str:
    """Say why a run failed, "" where it did not."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = re.sub(r"\x1b\[[0-9;]*m", "", lines[-1]) if lines else "it printed nothing"
    if taken["killed"]:
        return f"{taken['killed']}; last line: {last}"
    return f"exit code {taken['status']}; last line: {last}" if taken["status"] else ""


def estimate(took: dict[tuple[str, str], list[float]], left: list[tuple[str, str]]) -> float:
    """Return how many seconds the measurements that are left will take, by those made."""
    every = [second for seconds in took.values() for second in seconds]
    usual = sum(every) / len(every)
    means = {key: sum(seconds) / len(seconds) for key, seconds in took.items()}
    return sum(means.get(key, usual) for key in left)


def facts(bench: Bench, tools: list[Tool], absent: dict[str, str]) -> dict[str, Any]:
    """What the measurements are of: all that must be the same where they go on."""
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
        "tools": {tool.name: overhead_tools.version(tool) for tool in tools},
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
        print(overhead_exact.compare(args, args.output / "overhead_exact.txt"))
        return
    kept = Measurements(args.output, "overhead", Row)
    if not args.report:
        wanted = [tool for tool in TOOLS if not args.tool or tool.name in (*args.tool, BASE)]
        reasons = {tool.name: overhead_tools.missing(tool) for tool in wanted}
        absent = {name: why for name, why in reasons.items() if why}
        for name, why in absent.items():
            print(f"not run: {name}: {why}")
        tools = [tool for tool in wanted if tool.name not in absent]
        bench = Bench(args, overhead_tools.counts() and shutil.which("perf") is not None)
        here = facts(bench, tools, absent)
        if args.fresh or args.quick:
            kept.throw_away()
        elif kept.csv.exists():
            kept.must_be_of(kept.known(), here)
        kept.know(here)
        with stoppable():
            bench.run(tools, kept)
    known, rows = kept.known(), kept.read()
    cells = overhead_table.cells(rows)
    text = overhead_table.text(known, rows, cells)
    drawn = overhead_plot.draw(known, cells, args.output)
    kept.show(text, overhead_table.markdown(known, rows, cells), drawn)


if __name__ == "__main__":
    main()
