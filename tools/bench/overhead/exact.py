"""Counts the user instructions of lotus alone with valgrind, for machines without counters.

    PYTHONPATH=. python tools/bench/overhead/comparison.py --exact

counts the instructions of `image_classification` and `tiny_images` without workers (the count of a
forked process would include its parent's), with and without hooks, on the instruction set that
valgrind supports. Only the program is counted, not lotus's own start and its report, which do not
grow with the program. The counts do not depend on the load of the machine and vary little.

Each program is counted at two sizes. The difference between them is that of the loop; what remains
is the start (imports, also of the hooks). Other tools use `measure` to count other programs.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

from lotus.format.manifest import TraceSettings
from lotus.recording import program_environment
from lotus.workloads.catalogue import FOLDER, WORKLOADS
from tools.bench import provenance

SIZES = {"image_classification": (32, 128), "tiny_images": (1280, 6400)}
USUAL = {"image_classification": 512, "tiny_images": 50_000}  # of lotus demo, of CIFAR-10
AIMS = {"image_classification": 0.005, "tiny_images": 0.015}


def pipelines(images: Path, scale: float, workers: int) -> dict[str, list[str]]:
    """Commands by name; `scale` multiplies how much each does."""
    return {
        "image": [
            *(sys.executable, str(FOLDER / "image_classification.py"), "--data", str(images)),
            *("--workers", str(workers), "--threads", "1"),
            *("--epochs", str(max(1, round(scale)))),
        ],
        "tiny": [
            *(sys.executable, str(FOLDER / "tiny_images.py")),
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


def measure(
    command: Sequence[str], environment: Mapping[str, str], counter: str
) -> tuple[float, float]:
    """(instructions or user CPU seconds of the command and all its children, wall seconds).

    `counter` is `perf`, `valgrind` or `cpu`.
    """
    # Start-up varies with the seed of hashes, and with modules that are compiled each time.
    # Threads that spin while they wait count instructions by chance.
    environ = {**environment, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts"
        words: list[str] = []
        if counter == "perf":
            words = ["perf", "stat", "-x,", "-e", "instructions:u", "-o", str(counts), "--"]
        elif counter == "valgrind":
            words = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--trace-children=yes"]
            words += ["--cachegrind-out-file=/dev/null", f"--log-file={counts}.%p"]
        started = time.perf_counter()
        child = subprocess.Popen([*words, *command], env=environ, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"{' '.join(command)} failed")
        if counter == "perf":
            match = re.search(r"^(\d+),", counts.read_text(), re.M)
            return float(match.group(1)) if match else float("nan"), wall
        if counter == "valgrind":
            logs = [path.read_text() for path in Path(folder).iterdir()]
            refs = [found for log in logs for found in re.findall(r"I\s+refs:\s+([\d,]+)", log)]
            return float(sum(int(number.replace(",", "")) for number in refs)), wall
        return used.ru_utime, wall


def compare(args: Namespace, path: Path) -> str:
    """Count, write what was found to `path`, and return it."""
    lines = [
        f"{provenance.cpus()}, Python {sys.version.split()[0]}, commit "
        f"{provenance.commit()}, {time.strftime('%F')}; by valgrind, without workers"
    ]
    for name in [name for name in args.workload if name in SIZES]:
        counts: dict[tuple[str, int], float] = {}
        for size in SIZES[name]:
            workload = WORKLOADS[name]
            data = args.data / workload.folder(size)
            make = [sys.executable, str(FOLDER / "making.py"), workload.maker, str(data)]
            subprocess.run([*make, "--count", str(size)], check=True, stdout=subprocess.DEVNULL)
            command = [sys.executable, str(workload.script), "--data", str(data)]
            command += ["--workers", "0", "--threads", "1"]
            command += ["--batch-size", str(workload.batch_size)]
            with tempfile.TemporaryDirectory() as folder:
                run = Path(folder) / "run"
                run.mkdir()
                traced = program_environment.with_tracing(os.environ, run, TraceSettings())
                # What is imported is compiled before, whose count is not that of a usual start.
                measure(command, traced, "cpu")
                shutil.rmtree(run / "events")
                counts["plain", size] = measure(command, os.environ, "valgrind")[0]
                counts["traced", size] = measure(command, traced, "valgrind")[0]
                if not any((run / "events").iterdir()):
                    raise SystemExit(f"{name}: nothing was traced")
            print(
                f"{name} {size}: {counts['plain', size]:,} {counts['traced', size]:,}", flush=True
            )
        lines.append(words(name, counts))
    text = "\n".join(lines) + "\n"
    path.write_text(text)
    return text


def words(name: str, counts: Mapping[tuple[str, int], float]) -> str:
    """Say what counts of (kind, size) come to: of the loop alone, and of a usual program."""
    small, large = SIZES[name]
    each, start = {}, {}
    for kind in ("plain", "traced"):
        each[kind] = (counts[kind, large] - counts[kind, small]) / (large - small)
        start[kind] = counts[kind, small] - small * each[kind]
    added = each["traced"] - each["plain"]
    usual = {kind: start[kind] + USUAL[name] * each[kind] for kind in each}
    return (
        f"{name}: the loop {added / each['plain']:+.2%} ({added:,.0f} instructions more on "
        f"{each['plain']:,.0f} a sample), the start {start['traced'] - start['plain']:+,.0f} on "
        f"{start['plain']:,.0f}; so of a whole program of {USUAL[name]:,} samples "
        f"{usual['traced'] / usual['plain'] - 1:+.2%} (aim {AIMS[name]:+.1%})"
    )
