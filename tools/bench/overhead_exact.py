"""User instructions of lotus alone, exactly, where a machine has no counters: by valgrind.

`python tools/bench/overhead.py --exact` counts the instructions of `image_classification` and
`tiny_images` without workers (the count of a forked process would start with its parent's), with
the hooks in them and without, on the instruction set that valgrind knows. Counted is the program:
lotus's own start and its final report stand apart, as they do not grow with the program. The load
of the machine does not matter, only what the program does; the pairs differ by little.

To leave out what starting costs (imports, of which lotus's hooks are a small part), each is counted
at two sizes: the difference is the loop's, and what it gives per sample is exact.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path

import overhead_table

from lotus import host, launch
from lotus.manifest import Settings
from lotus.workloads.catalogue import FOLDER, WORKLOADS

ROOT = Path(__file__).parents[2]
SIZES = {"image_classification": (32, 128), "tiny_images": (1280, 6400)}
AIMS = {"image_classification": 0.005, "tiny_images": 0.015}


def instructions(command: Sequence[str], given: Mapping[str, str]) -> int:
    """Return the user instructions of a command and of all that it starts."""
    # Start-up varies with the seed of hashes, and threads that spin count by chance.
    environ = {**given, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        words = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--trace-children=yes"]
        words += ["--cachegrind-out-file=/dev/null", f"--log-file={folder}/log.%p"]
        done = subprocess.run(
            [*words, *command], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        if done.returncode:
            last = (done.stderr.decode(errors="replace").strip().splitlines() or ["nothing"])[-1]
            raise SystemExit(f"{' '.join(command)} failed: {last}")
        logs = [path.read_text() for path in Path(folder).iterdir()]
    refs = [found for log in logs for found in re.findall(r"I\s+refs:\s+([\d,]+)", log)]
    return sum(int(number.replace(",", "")) for number in refs)


def measure(args: Namespace, path: Path) -> str:
    """Count, write what was found to `path`, and return it."""
    facts = host.facts()
    lines = [
        f"{facts['cpu']['model']}, Python {sys.version.split()[0]}, commit "
        f"{overhead_table.commit(ROOT)}, {time.strftime('%F')}; by valgrind, without workers"
    ]
    for name in [name for name in args.workload if name in SIZES]:
        counts: dict[tuple[str, int], int] = {}
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
                traced = launch.environment(os.environ, run, Settings())
                counts["plain", size] = instructions(command, dict(os.environ))
                counts["traced", size] = instructions(command, traced)
                if not any((run / "events").iterdir()):
                    raise SystemExit(f"{name}: nothing was traced")
            print(
                f"{name} {size}: {counts['plain', size]:,} {counts['traced', size]:,}", flush=True
            )
        lines.append(words(name, counts))
    text = "\n".join(lines) + "\n"
    path.write_text(text)
    return text


def words(name: str, counts: Mapping[tuple[str, int], int]) -> str:
    """Say what counts of (kind, size) come to: of the whole program, and of the loop alone."""
    small, large = SIZES[name]
    whole = counts["traced", large] / counts["plain", large] - 1
    plain = (counts["plain", large] - counts["plain", small]) / (large - small)
    traced = (counts["traced", large] - counts["traced", small]) / (large - small)
    return (
        f"{name}: the loop {traced / plain - 1:+.2%} ({traced - plain:,.0f} instructions more on "
        f"{plain:,.0f} a sample; aim {AIMS[name]:+.1%}); the whole program of {large:,} samples "
        f"{whole:+.2%} of {counts['plain', large]:,}"
    )
