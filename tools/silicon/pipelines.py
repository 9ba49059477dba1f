"""Real training scripts under `lotus trace --counters --perf`: counts of each operation, exact and
joined from samples, and what counting adds to a program."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COUNTERS = "--counters=branch_misses"  # with cycles and instructions
SHARES = ("frontend_bound", "backend_bound", "retiring", "bad_speculation")


@dataclass(frozen=True)
class Pipeline:
    """A script of lotus.workloads with its arguments."""

    name: str
    arguments: tuple[str, ...]
    workers: int

    def command(self) -> list[str]:
        """Return the command line, run by this Python."""
        script = ROOT / "lotus" / "workloads" / f"{self.name}.py"
        words = [sys.executable, str(script), *self.arguments, "--threads", "1"]
        return [*words, "--workers", str(self.workers)]


def pipelines(images: Path, scale: float) -> list[Pipeline]:
    """Each at 1, 2 and 4 workers; long with one, for 10,000 samples of the largest operation."""

    def epochs(number: float) -> str:
        return str(max(round(number * scale), 1))

    listed = []
    for workers, count in ((1, 16), (2, 4), (4, 4)):
        arguments = ("--data", str(images), "--epochs", epochs(count))
        listed.append(Pipeline("image_classification", arguments, workers))
    for workers in (1, 2, 4):
        arguments = ("--images", str(max(round(20_000 * scale), 512)), "--epochs", "1")
        listed.append(Pipeline("tiny_images", arguments, workers))
    return listed


def lotus(*words: str) -> Any:
    """Return the JSON document that a lotus command prints."""
    completed = subprocess.run(
        [sys.executable, "-m", "lotus", *words], capture_output=True, text=True, check=True
    )
    return json.loads(completed.stdout)


def trace(
    pipeline: Pipeline, folder: Path, perf: bool = True, environ: dict[str, str] | None = None
) -> Path:
    """Record one run of it; returns the run directory. Raises CalledProcessError."""
    run = folder / f"{pipeline.name}-{pipeline.workers}"
    words = [sys.executable, "-m", "lotus", "trace", "-f", "-q", "-o", str(run), "--counters"]
    words += ["--perf", "--perf-kernel"] if perf else []
    subprocess.run(
        [*words, "--", *pipeline.command()],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, **(environ or {})},
    )
    return run


def measure(pipeline: Pipeline, folder: Path) -> dict[str, Any]:
    """Trace it, and reduce the run to a row an operation."""
    run = trace(pipeline, folder)
    mapped = lotus("map", str(run), "--json")
    judged = {
        (row["kind"], row["operation"]): row
        for row in lotus("map", "validate", str(run), "--json")["operations"]
    }
    operations = []
    for row in mapped["operations"]:
        if not row["counted"] or not row.get("cycles"):
            continue
        check = judged.get((row["kind"], row["operation"]), {})
        cycles, instructions = row["cycles"], row.get("instructions")
        operations.append(
            {
                "operation": row["operation"] or row["kind"],
                "intervals": row["counted"],
                "instructions": None if instructions is None else instructions / row["counted"],
                "cycles": cycles / row["counted"],
                "cpu_ns": row["cpu_ns"] / row["counted"] if row.get("cpu_ns") else None,
                "ipc": row.get("ipc"),
                **{share: row.get(share) for share in SHARES},
                "running_share": row["running_share"],
                "samples": check.get("samples"),
                "joined_error": check.get("err_joined"),
                "joined_width": check.get("width"),
                "held": check.get("within_ci"),
                "calibrated_error": check.get("err_calibrated"),
            }
        )
    return {
        "pipeline": pipeline.name,
        "workers": pipeline.workers,
        "counted": [event["name"] for event in mapped["counted"]],
        "sampled": mapped["sampled"],
        "operations": operations,
    }


def instructions_added(pipeline: Pipeline, folder: Path, perf: str) -> dict[str, float] | None:
    """User instructions of the whole program: alone, traced, traced with counters.

    Counted by `perf stat` around the program, children included; None where that fails. lotus
    counts three events then: perf stat needs a counter of its own beside them.
    """
    counts = {}
    for name, words in (
        ("alone", []),
        ("traced", ["-m", "lotus", "trace", "-f", "-q", "-o", str(folder / "cost"), "--"]),
        (
            "counted",
            ["-m", "lotus", "trace", "-f", "-q", "-o", str(folder / "cost"), COUNTERS, "--"],
        ),
    ):
        # perf stands behind lotus: what lotus does before and after the program is left out.
        counting = [perf, "stat", "-x,", "-e", "instructions:u", "-o", str(folder / "stat")]
        lead = [sys.executable, *words] if words else []
        completed = subprocess.run(
            [*lead, *counting, *pipeline.command()], stdout=subprocess.DEVNULL, check=False
        )
        value = _counted(folder / "stat")
        if completed.returncode or value is None:
            return None
        counts[name] = value
    return counts


def _counted(path: Path) -> float | None:
    for line in path.read_text().splitlines():
        fields = line.split(",")
        if len(fields) > 2 and fields[2].startswith("instructions") and fields[0].isdigit():
            return float(fields[0])
    return None


def missing(command: Sequence[str]) -> str:
    """Return why the pipelines cannot be run by this Python; "": they can."""
    completed = subprocess.run([*command, "-c", "import torch, torchvision"], capture_output=True)
    return "" if not completed.returncode else "torch and torchvision are not installed"
