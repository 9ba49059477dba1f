"""Measures the hooks: instructions and nanoseconds per batch, sample and operation.

    python tools/bench/hooks.py [--batches 2000] [--repeat 5]

The hooks are those in C if they are built, or those in Python with `LOTUS_HOOKS=python` in the
environment; the second line says which, and whether C was built as for a release (optimised,
without assertions). Batches that `--every` and `--batches` leave out are measured as well.

A data set that does nothing is fetched as torch's fetcher does it, without hooks and at each level;
the differences are the cost of the hooks. Instructions are counted by `perf stat` if the machine
has counters, else by valgrind; times are the minimum of --repeat runs. Does not import torch.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
INSIDE = ROOT / "lotus" / "inside"
BATCH = 128
LEVELS = ("plain", "batch", "sample", "op", "op+cpu")
# Of all batches only the first is recorded.
FEW = {"every": {"LOTUS_EVERY": str(1 << 40)}, "batches": {"LOTUS_BATCHES": "0:1"}}
LEFT_OUT = [f"{level}, --{option}" for option in FEW for level in ("batch", "sample", "op")]


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
    """What lotus uses of torch's _MapDatasetFetcher."""

    auto_collation = True

    def __init__(self, dataset: Data) -> None:
        self.dataset = dataset
        self.collate_fn = len

    def fetch(self, indices: Sequence[int]) -> int:
        return self.collate_fn([self.dataset[index] for index in indices])


def work(level: str, batches: int, run: str) -> float:
    """Fetch so many batches; return nanoseconds a batch."""
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
        inside = importlib.import_module("_lotus_inside.common.config")
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
    started = time.perf_counter_ns()
    for batch in range(batches):
        if recorder is not None:
            recorder.here.hand.where = (-1, 0, batch)
        fetcher.fetch(indices)
        if recorder is not None:
            recorder.flush_batch(1)
    return (time.perf_counter_ns() - started) / batches


def build() -> str:
    """Which hooks are measured, and how they and this Python were compiled."""
    from lotus.inside.trace.native import native_hooks

    module = native_hooks.MODULE
    hooks = "hooks in Python" if module is None else f"hooks in C, build: {module.BUILD}"
    flags = str(sysconfig.get_config_var("PY_CFLAGS")).split()
    checked = sysconfig.get_config_var("Py_DEBUG") or "-DNDEBUG" not in flags
    levels = [flag for flag in flags if flag.startswith("-O")]
    return f"{hooks}; Python {'with' if checked else 'without'} assertions, {' '.join(levels[-1:])}"


def counter() -> list[str]:
    """The command line that counts instructions here, or an empty list."""
    if shutil.which("perf"):
        words = ["perf", "stat", "-x,", "-e", "instructions:u", "--"]
        result = subprocess.run([*words, "true"], capture_output=True, text=True)
        if re.search(r"^[1-9]\d*,", result.stderr, re.M):
            return words
    if shutil.which("valgrind"):
        return "valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null".split()
    return []


def run_one(level: str, batches: int, words: Sequence[str]) -> tuple[float, float]:
    """(instructions or NaN, nanoseconds a batch) of one process."""
    with tempfile.TemporaryDirectory() as run:
        command = [sys.executable, __file__, "--work", level, "--batches", str(batches)]
        environ = {**os.environ, "PYTHONHASHSEED": "0", "LOTUS_BENCH_RUN": run}
        result = subprocess.run(
            [*words, *command], env=environ, capture_output=True, text=True, check=True
        )
    match = re.search(r"I\s+refs:\s+([\d,]+)|^(\d+),", result.stderr, re.M)
    count = float((match.group(1) or match.group(2)).replace(",", "")) if match else float("nan")
    return count, float(result.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batches", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--work", choices=[*LEVELS, *LEFT_OUT], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        print(work(args.work, args.batches, os.environ["LOTUS_BENCH_RUN"]))
        return
    import provenance

    words = counter()
    heading = f"{provenance.cpus()}, commit {provenance.commit()}"
    print(f"{heading}, Python {sys.version.split()[0]}")
    print(build())
    print(
        f"instructions counted by {words[0] if words else 'nothing: no perf counter, no valgrind'}"
    )
    instructions, times = {}, {}
    for level in [*LEVELS, *LEFT_OUT]:
        few, many = args.batches // 10, args.batches // 2
        if words:
            low, high = (run_one(level, batches, words)[0] for batches in (few, many))
            instructions[level] = (high - low) / (many - few)
        runs = [run_one(level, args.batches, [])[1] for _ in range(args.repeat)]
        times[level] = min(runs)
        print(
            f"  {level:17} {min(runs) / 1000:7.1f} to {max(runs) / 1000:.1f} us a batch of {BATCH}"
        )
    rows = [
        ("batch", "batch", "plain", 1),
        ("sample", "sample", "batch", BATCH),
        ("operation", "op", "sample", 2 * BATCH),
        ("operation with CPU time", "op+cpu", "sample", 2 * BATCH),
    ]
    for option in FEW:
        end = f", --{option}"
        rows += [
            (f"batch not recorded{end}", f"batch{end}", "plain", 1),
            (f"sample not recorded{end}", f"sample{end}", f"batch{end}", BATCH),
            (f"operation not recorded{end}", f"op{end}", f"sample{end}", 2 * BATCH),
        ]
    for name, after, before, parts in rows:
        counted = ""
        if words:
            counted = f"{(instructions[after] - instructions[before]) / parts:10,.0f} instructions,"
        took = (times[after] - times[before]) / parts
        print(f"{name:34} {counted} {took:8,.0f} ns")


if __name__ == "__main__":
    main()
