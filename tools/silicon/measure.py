"""Measures the counters of this machine: see tools/silicon.sh.

python tools/silicon/measure.py [--scale 1] [--output docs/silicon] [--images DIR]
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import known_loops
import pipelines
import table

from lotus.hardware import event_selection
from lotus.hardware.counter_probe import GENERIC, Probe
from lotus.workloads import jpegs
from native_map.events import cpu as cpus
from tools.bench import provenance

HERE = Path(__file__).resolve().parent


def counters() -> dict[str, Any]:
    """Return which hardware events count here, how many at once, and what `--counters` takes."""
    probe = Probe()
    events = known_loops.events()
    for name, event in events.items():
        if name.startswith("topdown_"):  # opens only behind the slots register
            probe.behind(events["slots"], event)
    working = [name for name, event in events.items() if probe.works(event)]
    capacity = probe.largest([*GENERIC, *(events[name] for name in working)])
    chosen = event_selection.choose(("auto",))
    return {
        "working": working,
        "announced": capacity.announced,
        "counts_at_once": capacity.right,
        "chosen": [event.name for event in chosen.events],
        "level_1": chosen.level_1,
        "notes": list(chosen.notes),
    }


def machine() -> dict[str, Any]:
    """Return the machine and the versions."""
    host, cpu = provenance.machine(), cpus.detect()
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = None
    details = {"uarch": cpu.uarch, "family": cpu.family, "model": cpu.model, "virtual": cpu.virtual}
    return {**host, **details, "python": sys.version.split()[0], "torch": torch}


def measure(scale: float, images: Path, folder: Path) -> dict[str, Any]:
    """Return all measurements, as one document."""
    begin, load = time.monotonic(), os.getloadavg()[0]
    results: dict[str, Any] = {
        "schema": 1,
        "date": time.strftime("%Y-%m-%d"),
        "commit": provenance.commit(),
        "machine": machine(),
        **counters(),
        "loops": [],
        "no_loops": "",
        "readings": [],
        "pipelines": [],
        "instructions": [],
    }
    _say("known loops")
    try:
        library = known_loops.build(folder)
    except known_loops.NoCompilerError as error:
        results["no_loops"] = str(error)
    else:
        results["loops"] = known_loops.measure(library, results["working"])
        results["readings"] = known_loops.reading_costs(library, results["working"])
    why = pipelines.missing([sys.executable])
    if why:
        results["notes"].append(f"{why}: no training script was measured")
    else:
        for _ in jpegs.make(images, 512):
            pass
        results.update(_train(scale, images, folder))
    results["load"] = [load, os.getloadavg()[0]]
    results["seconds"] = time.monotonic() - begin
    return results


def _train(scale: float, images: Path, folder: Path) -> dict[str, Any]:
    runs, cost = [], []
    for pipeline in pipelines.pipelines(images, scale):
        _say(f"{pipeline.name}, workers: {pipeline.workers}")
        try:
            runs.append(pipelines.measure(pipeline, folder))
        except subprocess.CalledProcessError as error:
            words = {"pipeline": pipeline.name, "workers": pipeline.workers}
            runs.append({**words, "failed": f"exit code {error.returncode}", "operations": []})
    perf = shutil.which("perf")
    for name, arguments in (
        ("image_classification", ("--data", str(images), "--epochs", "1")),
        ("tiny_images", ("--images", str(max(round(20_000 * scale), 512)), "--epochs", "1")),
    ):
        _say(f"instructions of {name}")
        trained = pipelines.Pipeline(name, arguments, 0)
        added = pipelines.instructions_added(trained, folder, perf) if perf else None
        if added:
            cost.append({"pipeline": f"{name}, no workers", **added})
    return {"pipelines": runs, "instructions": cost}


def _say(text: str) -> None:
    print(f"silicon: {text}", file=sys.stderr, flush=True)


def name(results: dict[str, Any]) -> str:
    """CPU, kernel and date, as a file name."""
    host = results["machine"]
    cpu = host["uarch"] if not host["uarch"].startswith("generic") else host["cpu"]
    kernel = host["kernel"].split()[0].split("-")[0]
    vm = "-vm" if host["virtual"] else ""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", f"{cpu}{vm}-linux{kernel}-{results['date']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="length of the runs (default: 1)")
    parser.add_argument("--output", type=Path, default=HERE.parents[1] / "docs" / "silicon")
    parser.add_argument("--images", type=Path, default=Path("~/.cache/lotus/jpegs-1-512"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(args.scale, args.images.expanduser(), Path(folder))
    args.output.mkdir(parents=True, exist_ok=True)
    target = args.output / name(results)
    Path(f"{target}.json").write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")
    Path(f"{target}.md").write_text(table.write(results))
    print(f"written: {target}.json and .md")
    if not results["counts_at_once"]:
        print("this machine has no hardware counters: lotus doctor says what would enable them")


if __name__ == "__main__":
    main()
