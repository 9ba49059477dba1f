"""Measures what perf and py-spy beside a program cost it.

    PYTHONPATH=. python tools/bench/sampling_cost.py [--pairs 8] [--processes 1 2] [--event EVENT]

The program only computes. It runs in pairs, with and without each recorder. Printed are the
differences of its CPU time, children included; of its wall time, because py-spy stops the program
while it looks; and of user instructions if the machine has counters: the median of the pairs'
ratios, and the interval of their middle half. The recorders' own CPU time is printed as well.
"""

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import provenance

from lotus.format.manifest import TraceSettings
from lotus.recording import launcher
from lotus.recording.perf_sidecar import Perf
from lotus.recording.py_spy_sidecar import PySpy
from lotus.recording.recorders import Sidecar
from native_map.recording.perf_command import Sampling

PROGRAM = """
import hashlib, json, os, resource, sys, time
def work(rounds):
    block, total = bytes(range(256)) * 64, 0
    for number in range(rounds):
        total += hashlib.sha256(block).digest()[0]
        for step in range(400):
            total += step * number
began = time.monotonic()
rounds, processes, children = int(sys.argv[1]), int(sys.argv[2]), []
for _ in range(processes - 1):
    pid = os.fork()
    if pid == 0:
        work(rounds)
        os._exit(0)
    children.append(pid)
work(rounds)
for pid in children:
    os.waitpid(pid, 0)
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
cpu = sum(each.ru_utime + each.ru_stime for each in used)
found = {"cpu": cpu, "wall": time.monotonic() - began}
json.dump(found, open(sys.argv[3], "w"))
"""


def sidecars(kind: str, event: str) -> Sequence[Sidecar]:
    name, _, number = kind.partition(" ")
    if name == "perf":
        return [Perf(Sampling((event,), int(number)))]
    return [PySpy(int(number))] if name == "py-spy" else []


def run_once(kind: str, event: str, processes: int, rounds: int, folder: Path) -> None:
    """In a process of its own: run the program once and print what it took, as JSON."""
    program, out = folder / "program.py", folder / "took.json"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(rounds), str(processes), str(out)]
    counts = folder / "counts"
    if has_counters():
        command = ["perf", "stat", "-x,", "-e", "instructions:u", "-o", str(counts), *command]
    directory, outcome = launcher.trace(
        command, folder / "run", TraceSettings(), sidecars=sidecars(kind, event)
    )
    usage = json.loads(out.read_text())
    if counts.exists():
        words = counts.read_text().splitlines()[-1].split(",")
        usage["instructions"] = float(words[0])
    for note in json.loads((directory / "run.json").read_text()).get("recorders", {}).values():
        if note["problem"] or outcome.exit_code:
            sys.exit(f"{kind}: {note['problem'] or outcome}")
        usage["own"], usage["samples"] = note["cpu_ns"] / 1e9, note.get("samples", 0)
    print(json.dumps(usage))


def has_counters() -> bool:
    if shutil.which("perf") is None:
        return False
    command = ["perf", "stat", "-x,", "-e", "instructions:u", "true"]
    completed = subprocess.run(command, capture_output=True, text=True)
    return completed.returncode == 0 and completed.stderr.split(",")[0].isdigit()


def measure(kind: str, event: str, processes: int, rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--one", kind, "--event", event, "--folder", folder]
        command += ["--processes", str(processes), "--rounds", str(rounds)]
        completed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(completed.stdout))


def compare(kind: str, args: argparse.Namespace, processes: int) -> None:
    ratios: dict[str, list[float]] = {}
    own, samples, plain = [], [], []
    for _ in range(args.pairs):
        results = {}
        for each in random.sample(["", kind], 2):
            results[each] = measure(each, args.event, processes, args.rounds)
        for name in ("cpu", "wall", "instructions"):
            if name in results[kind] and name in results[""]:
                ratio = results[kind][name] / results[""][name]
                ratios.setdefault(name, []).append(100 * (ratio - 1))
        plain.append(results[""]["cpu"])
        own.append(results[kind]["own"])
        samples.append(results[kind]["samples"])
    for name, values in ratios.items():
        low, middle, high = statistics.quantiles(values, n=4)
        print(
            f"{kind:12} {processes} processes  {name:12} {middle:+6.2f} %  "
            f"({low:+.2f} to {high:+.2f}; all {min(values):+.2f} to {max(values):+.2f})"
        )
    print(
        f"{'':12} of {statistics.median(plain):.2f} s; the recorder itself "
        f"{statistics.median(own):.2f} s, {statistics.median(samples):.0f} samples",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=120_000, help="work of each process")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--event", default="cpu-clock")
    parser.add_argument("--kinds", nargs="+", default=["perf 199", "perf 997", "py-spy 100"])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one is not None:
        run_once(args.one, args.event, args.processes[0], args.rounds, args.folder)
        return
    print(provenance.header(more=f"; event {args.event}"))
    if not has_counters():
        print("this machine counts no instructions: processor time instead")
    for processes in args.processes:
        for kind in args.kinds:
            compare(kind, args, processes)


if __name__ == "__main__":
    main()
