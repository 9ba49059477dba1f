"""Measures speed and memory of assigning libraries and functions to 1.5 million samples.

    PYTHONPATH=. python tools/bench/speed/symbols.py [--samples 1500000] [--processes 17]
        [--repeat 5] [--library PATH ...]

The samples lie in several forked processes that share their mappings, in functions of each
library's symbol table: in 2,000 of them, the n-th 1/n times as often as the first, as in a real
profile; and evenly in all of them, as the worst case. The libraries are libtorch_cpu.so and
libpython unless --library names others. Cold is a new `Symbols` with the files in the page cache;
warm is the same one again. Printed are seconds and peak memory.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from native_map.symbols.elf import Elf
from native_map.symbols.symbolizer import Symbols
from tools.bench import provenance

PAGE = 4096
FUNCTIONS = 2000


def usual_libraries() -> list[str]:
    paths = []
    torch = find_spec("torch")
    if torch is not None and torch.origin:
        paths.append(str(Path(torch.origin).parent / "lib" / "libtorch_cpu.so"))
    text = Path("/proc/self/maps").read_text()
    paths += sorted({line.split(None, 5)[-1] for line in text.splitlines() if "libpython" in line})
    return [path for path in paths if os.path.exists(path)] or [os.path.realpath(sys.executable)]


def make(
    paths: list[str], count: int, processes: int, even: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Mappings and samples: every process has all libraries at the same places."""
    rng = np.random.default_rng(0)
    rows, places = [], []
    base = 0x7F0000000000
    for path in paths:
        elf = Elf.open(path)
        load = next(s for s in elf.segments if s.type == 1 and s.flags & 1)
        start, skip = base + load.vaddr // PAGE * PAGE, load.offset // PAGE * PAGE
        rows.append((start, start + (load.filesz // PAGE + 2) * PAGE, skip, path, elf.build_id))
        tables = elf.symbol_tables()
        value = np.concatenate([table.value for table in tables])
        size = np.concatenate([table.size for table in tables])
        good = (size > 0) & elf.executable(value)
        able = np.flatnonzero(good)
        often = np.ones(len(able))
        if not even:
            able = rng.permutation(able)[:FUNCTIONS]
            often = 1 / np.arange(1, len(able) + 1)
        pick = rng.choice(able, count // len(paths), p=often / often.sum())
        inside = (rng.random(len(pick)) * size[pick]).astype(np.uint64)
        offsets, _ = elf.offsets(value[pick] + inside)
        places.append(offsets - np.uint64(skip) + np.uint64(start))
        base += 1 << 32
    ip = np.concatenate(places)
    rng.shuffle(ip)
    names = ["start", "end", "offset", "path", "build_id"]
    table = pd.DataFrame(rows, columns=names).assign(time_ns=0, executable=True)
    mappings = pd.concat([table.assign(pid=100 + n) for n in range(processes)], ignore_index=True)
    samples = pd.DataFrame(
        {
            "time_ns": np.arange(len(ip), dtype=np.int64),
            "pid": rng.integers(100, 100 + processes, len(ip)).astype(np.int32),
            "ip": ip,
            "cpu_mode": np.int8(2),
        }
    )
    return mappings, samples


def once(paths: list[str], count: int, processes: int, even: bool) -> None:
    """Child process: resolve cold and warm and print what it took, as JSON."""
    mappings, samples = make(paths, count, processes, even)
    before = peak_bytes()
    began, began_cpu = time.perf_counter(), cpu_s()
    symbols = Symbols()
    frame = symbols.resolve(mappings, samples)
    cold, cold_cpu = time.perf_counter(), cpu_s()
    symbols.resolve(mappings, samples)
    warm, warm_cpu = time.perf_counter(), cpu_s()
    functions = frame["function"]
    print(
        json.dumps(
            {
                "cold": cold - began,
                "warm": warm - cold,
                "cold_cpu": cold_cpu - began_cpu,
                "warm_cpu": warm_cpu - cold_cpu,
                "addresses": int(samples["ip"].nunique()),
                "functions": int(functions.nunique()),
                "unknown": int((functions == "[unknown]").sum()),
                "samples": len(samples),
                "before": before,
                "peak": peak_bytes(),
            }
        )
    )


def cpu_s() -> float:
    """CPU time of this process and of the children that demangle: other work does not count."""
    return sum(os.times()[:4])


def peak_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(row.split()[1] for row in status.splitlines() if "VmHWM" in row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=1_500_000)
    parser.add_argument("--processes", type=int, default=17)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--library", nargs="*", default=[])
    parser.add_argument("--even", action="store_true", help="all functions, evenly")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    every = args.library or usual_libraries()
    if args.once:
        once(every, args.samples, args.processes, args.even)
        return
    print(provenance.header(np))
    print(f"samples  {args.samples:,} in {args.processes} processes; {args.repeat} runs each")
    groups = [[path] for path in every] + ([every] if len(every) > 1 else [])
    for even in [True] if args.even else [False, True]:
        print("all functions, evenly" if even else f"{FUNCTIONS:,} functions of each, as 1/n")
        for paths in groups:
            show(paths, args, even)


def show(paths: list[str], args: argparse.Namespace, even: bool) -> None:
    command = [sys.executable, os.path.abspath(__file__), "--once", "--library", *paths]
    command += ["--samples", str(args.samples), "--processes", str(args.processes)]
    command += ["--even"] * even
    done = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(args.repeat)
    ]
    last = done[-1]
    print("  " + " + ".join(Path(path).name for path in paths))
    print(f"    {last['addresses']:,} addresses, {last['functions']:,} functions,", end=" ")
    print(f"{last['unknown']:,} of {last['samples']:,} samples without a name")
    for name in ("cold", "warm"):
        took = [each[name] for each in done]
        middle = statistics.median(took)
        cpu = statistics.median(each[f"{name}_cpu"] for each in done)
        print(f"    {name}  median {middle:.2f} s, {min(took):.2f} to {max(took):.2f} s", end="")
        print(f", {last['samples'] / middle / 1e6:.2f} million samples/s;", end=" ")
        print(f"CPU {cpu:.2f} s, {last['samples'] / cpu / 1e6:.2f} million samples/s")
    print(f"    peak  {last['peak'] / 1e6:.0f} MB, before resolving {last['before'] / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
