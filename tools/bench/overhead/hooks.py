"""Counts the instructions of the hooks per batch, sample and operation.

    PYTHONPATH=. python tools/bench/overhead/hooks.py [--batches 2000] [--repeat 3]
        [--part batch sample operation]

The hooks are those in C if they are built, or those in Python with `LOTUS_HOOKS=python` in the
environment; the second line says which, and whether C was built as for a release (optimised,
without assertions). Batches that `--every` and `--batches` leave out are measured as well.

A data set that does nothing is fetched as torch's fetcher does it, without hooks and at each level;
the differences are the cost of the hooks. Instructions are counted by `perf stat` if the machine
has counters, else by valgrind; printed are the median, the least and the most of --repeat counts.
hooks_time.py times the same. Does not import torch.
"""

import argparse
import importlib.util
import os
import re
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
INSIDE = ROOT / "lotus" / "inside"
BATCH = 128
LEVELS = ("plain", "batch", "sample", "op", "op+cpu")
# Of all batches only the first is recorded.
FEW = {"every": {"LOTUS_EVERY": str(1 << 40)}, "batches": {"LOTUS_BATCHES": "0:1"}}
LEFT_OUT = [f"{level}, --{option}" for option in FEW for level in ("batch", "sample", "op")]
# By part of a program: the level that has its hooks, the one that lacks them, and how many a batch.
PARTS = {
    "batch": ("batch", "plain", 1),
    "sample": ("sample", "batch", BATCH),
    "operation": ("op", "sample", 2 * BATCH),
    "operation with CPU time": ("op+cpu", "sample", 2 * BATCH),
}
for _end in (f", --{option}" for option in FEW):
    PARTS |= {
        f"batch not recorded{_end}": (f"batch{_end}", "plain", 1),
        f"sample not recorded{_end}": (f"sample{_end}", f"batch{_end}", BATCH),
        f"operation not recorded{_end}": (f"op{_end}", f"sample{_end}", 2 * BATCH),
    }


class First:
    def __call__(self, value: int) -> int:
        return value


class Second(First):
    def __call__(self, value: int) -> int:
        return value


class Compose:
    def __init__(self, transforms: list[First]) -> None:
        self.transforms = transforms

    def __call__(self, value: int) -> int:
        for transform in self.transforms:
            value = transform(value)
        return value


class Data:
    def __init__(self) -> None:
        self.transform = Compose([First(), Second()])

    def __getitem__(self, index: int) -> int:
        return self.transform(index)


class Fetcher:
    """The part of torch's _MapDatasetFetcher that lotus uses."""

    auto_collation = True

    def __init__(self, dataset: Data) -> None:
        self.dataset = dataset
        self.collate_fn = len

    def fetch(self, indices: Sequence[int]) -> int:
        return self.collate_fn([self.dataset[index] for index in indices])


def work(level: str, batches: int, run: str) -> float:
    """Fetch so many batches; return the seconds that this takes."""
    dataset = Data()
    fetcher: Any = Fetcher(dataset)
    recorder: Any = None
    if level != "plain":
        spec = importlib.util.spec_from_file_location(
            "_lotus_inside", INSIDE / "__init__.py", submodule_search_locations=[str(INSIDE)]
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules["_lotus_inside"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        recording = importlib.import_module("_lotus_inside.trace.recorder")
        inside = importlib.import_module("_lotus_inside.trace.config")
        counters = os.environ.get("LOTUS_COUNTERS", "")  # see counters.py
        name, _, option = level.partition(", --")
        environ = {"LOTUS_RUN": run, "LOTUS_LEVEL": name, "LOTUS_COUNTERS": counters}
        config = inside.Config(environ | FEW.get(option, {}))
        # Under valgrind all takes long, which is not another thread that holds the interpreter.
        recording.rusage._LONG_NS = 1 << 62
        recorder = recording.Recorder(config, None)
        recorder.iteration_started()
        inside = importlib.import_module("_lotus_inside.trace.fetches.fetch_hooks")
        fetcher = inside.instrument(fetcher, dataset, recorder, [])
    indices = list(range(1000, 1000 + BATCH))
    started = time.perf_counter()
    for batch in range(batches):
        if recorder is not None:
            recorder.here.hand.where = (-1, 0, batch)
        fetcher.fetch(indices)
        if recorder is not None:
            recorder.flush_batch(1)
    return time.perf_counter() - started


def build() -> str:
    """Return which hooks are measured, and how they and this Python were compiled."""
    from lotus.inside.trace.native import native_hooks

    module = native_hooks.MODULE
    hooks = "hooks in Python" if module is None else f"hooks in C, build: {module.BUILD}"
    flags = str(sysconfig.get_config_var("PY_CFLAGS")).split()
    checked = sysconfig.get_config_var("Py_DEBUG") or "-DNDEBUG" not in flags
    levels = [flag for flag in flags if flag.startswith("-O")]
    return f"{hooks}; Python {'with' if checked else 'without'} assertions, {' '.join(levels[-1:])}"


def counter() -> list[str]:
    """Return the command line that counts instructions here, or an empty list."""
    if shutil.which("perf"):
        words = ["perf", "stat", "-x,", "-e", "instructions:u", "--"]
        result = subprocess.run([*words, "true"], capture_output=True, text=True)
        if re.search(r"^[1-9]\d*,", result.stderr, re.M):
            return words
    if shutil.which("valgrind"):
        return "valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null".split()
    return []


def count(level: str, batches: int, words: Sequence[str]) -> float:
    """Return the instructions of one process that fetches so many batches."""
    with tempfile.TemporaryDirectory() as run:
        command = [sys.executable, __file__, "--work", level, "--batches", str(batches)]
        environ = {**os.environ, "PYTHONHASHSEED": "0", "LOTUS_BENCH_RUN": run}
        result = subprocess.run(
            [*words, *command], env=environ, capture_output=True, text=True, check=True
        )
    match = re.search(r"I\s+refs:\s+([\d,]+)|^(\d+),", result.stderr, re.M)
    return float((match.group(1) or match.group(2)).replace(",", "")) if match else float("nan")


def of_a_batch(level: str, batches: int, words: Sequence[str]) -> float:
    """Return the instructions of a batch, without those of the start."""
    few, many = batches // 10, batches // 2
    return (count(level, many, words) - count(level, few, words)) / (many - few)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batches", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--part", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--work", choices=[*LEVELS, *LEFT_OUT], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(args.work, args.batches, os.environ["LOTUS_BENCH_RUN"])
        return
    from tools.bench import provenance

    words = counter()
    if not words:
        raise SystemExit("neither a perf counter nor valgrind counts here; hooks_time.py times")
    heading = f"{provenance.cpus()}, commit {provenance.commit()}"
    print(f"{heading}, Python {sys.version.split()[0]}, {time.strftime('%Y-%m-%d')}")
    print(f"{build()}; counted by {words[0]}", flush=True)
    chosen = {name: PARTS[name] for name in args.part}
    levels = dict.fromkeys(
        level for after, before, _ in chosen.values() for level in (after, before)
    )
    counts: dict[str, list[float]] = {level: [] for level in levels}
    for _ in range(args.repeat):
        for level, found in counts.items():
            found.append(of_a_batch(level, args.batches, words))
    for name, (after, before, parts) in chosen.items():
        costs = [(a - b) / parts for a, b in zip(counts[after], counts[before], strict=True)]
        print(
            f"{name:34} {statistics.median(costs):10,.0f} instructions "
            f"({min(costs):,.0f} to {max(costs):,.0f})"
        )


if __name__ == "__main__":
    main()
