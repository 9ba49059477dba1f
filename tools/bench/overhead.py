"""What tracing costs the traced program, by interleaved pairs of the same command with and without.

    python tools/bench/overhead.py [--pipeline image tiny] [--pairs 7] [--measure auto]

It counts the program's user-space instructions with `perf stat` where the machine has counters.
Elsewhere `--measure valgrind` counts them exactly but slowly, on the instruction set that valgrind
knows and without workers (the count of a forked process starts with its parent's);
`--measure cpu` compares user CPU seconds, whose noise here is several percent.
Counted is the program with the hooks in it; lotus's own start and final report stand apart.
It judges nothing: it prints machine, commit, versions and spread.
"""

import argparse
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lotus import host, launch
from lotus.manifest import Settings
from lotus.run import load
from lotus.workloads import jpegs

WORKLOADS = Path(jpegs.__file__).parent


def pipelines(images: Path, scale: float, workers: int) -> dict[str, list[str]]:
    """Commands by name; `scale` multiplies how much each does."""
    return {
        "image": [
            sys.executable,
            str(WORKLOADS / "image_classification.py"),
            *("--data", str(images), "--workers", str(workers), "--threads", "1"),
            *("--epochs", str(max(1, round(scale)))),
        ],
        "tiny": [
            sys.executable,
            str(WORKLOADS / "tiny_images.py"),
            *("--images", str(round(50_000 * scale)), "--workers", str(workers)),
        ],
    }


def has_counters() -> bool:
    perf = shutil.which("perf")
    if perf is None:
        return False
    probe = ["perf", "stat", "-x,", "-e", "instructions:u", sys.executable, "-c", "1"]
    result = subprocess.run(probe, capture_output=True, text=True)
    return result.returncode == 0 and bool(re.search(r"^[1-9]\d*,", result.stderr, re.M))


def measure(command: Sequence[str], given: Mapping[str, str], how: str) -> tuple[float, float]:
    """(instructions or user CPU seconds of the command and all its children, wall seconds)."""
    # Start-up varies with the seed of hashes, and with modules that are compiled each time.
    # Threads that spin while they wait count instructions by chance.
    environ = {**given, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts"
        if how == "perf":
            words = ["perf", "stat", "-x,", "-e", "instructions:u", "-o", str(counts), "--"]
        elif how == "valgrind":
            words = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--trace-children=yes"]
            words += ["--cachegrind-out-file=/dev/null", f"--log-file={counts}.%p"]
        else:
            words = []
        started = time.perf_counter()
        child = subprocess.Popen([*words, *command], env=environ, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"{' '.join(command)} failed")
        if how == "perf":
            found = re.search(r"^(\d+),", counts.read_text(), re.M)
            return float(found.group(1)) if found else float("nan"), wall
        if how == "valgrind":
            logs = [path.read_text() for path in Path(folder).iterdir()]
            refs = [found for log in logs for found in re.findall(r"I\s+refs:\s+([\d,]+)", log)]
            return float(sum(int(number.replace(",", "")) for number in refs)), wall
        return used.ru_utime, wall


def compare(name: str, command: Sequence[str], args: argparse.Namespace, how: str) -> None:
    pairs, walls, plain_values = [], [], []
    log = images = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.pairs + 1):  # the first pair only warms caches
            run = Path(folder) / f"run{number}"
            run.mkdir()
            settings = Settings(level=args.level)
            environs = {
                "plain": dict(os.environ),
                "traced": launch.environment(os.environ, run, settings),
            }
            order = random.sample(sorted(environs), 2)
            if number == 0 and how == "valgrind":
                continue
            got = {kind: measure(command, environs[kind], how) for kind in order}
            if number:
                pairs.append(got["traced"][0] / got["plain"][0] - 1)
                walls.append(got["traced"][1] / got["plain"][1] - 1)
                plain_values.append(got["plain"][0])
            log = sum(path.stat().st_size for path in (run / "events").iterdir())
            (run / "run.json").write_text('{"schema": 1, "state": "ended"}')
            images = int(load(run).batches["size"].sum())
    unit = "user CPU s" if how == "cpu" else "instructions"
    spread = f"{min(pairs):+.2%} to {max(pairs):+.2%}"
    print(
        f"{name:8} {unit}: {statistics.median(pairs):+.2%} (median of {len(pairs)}, {spread}) of "
        f"{statistics.median(plain_values):.4g}; wall {statistics.median(walls):+.1%} "
        f"({min(walls):+.1%} to {max(walls):+.1%}); log {log / images:.1f} bytes an image",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pipeline", nargs="+", choices=["image", "tiny"])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0, help="how much each pipeline does")
    parser.add_argument("--level", default="op")
    parser.add_argument("--measure", choices=["auto", "perf", "valgrind", "cpu"], default="auto")
    args = parser.parse_args()
    how = args.measure
    if how == "auto":
        how = "perf" if has_counters() else "cpu"
        if how == "cpu":
            print("no instruction counter on this machine: user CPU time instead")
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    facts = host.facts()
    print(f"{facts['cpu']['model']}, {facts['cpu']['affinity']} CPUs, commit {commit}")
    print(f"Python {sys.version.split()[0]}, level {args.level}, measured by {how}")
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images"
        for _ in jpegs.make(images, 256):
            pass
        for name, command in pipelines(images, args.scale, 0 if how == "valgrind" else 1).items():
            if not args.pipeline or name in args.pipeline:
                compare(name, command, args, how)


if __name__ == "__main__":
    main()
