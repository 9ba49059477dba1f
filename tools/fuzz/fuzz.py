"""Tests that every reader answers damaged and hostile files with a result or a one-line refusal.

    PYTHONPATH=. python tools/fuzz/fuzz.py [--inputs 1000000] [--seed 0] [--processes 2]
        [--only READER ...] [--attacks N] [--keep DIRECTORY] [--input READER:NUMBER]

An input is a valid file, changed in one to four places: numbers become extreme, parts are removed,
doubled, swapped or moved, JSON values are replaced. In most inputs checksums and lengths are then
corrected, because a reader refuses wrong ones before it reads anything else. A few inputs are
truncated or have random bits flipped. Each input follows from the seed and its number alone. One in
N (--attacks) is instead made to cost as much as possible (attacks.py): up to 16 MB of sizes
without content, holes, repetitions that compress well, and overlapping parts.

Inputs "past the header" are those whose first check (magic number, checksum, schema, form)
succeeded, so that their contents were read. A fault is anything but a result or a refusal: another
exception, more than CPU_S seconds of CPU time, or more than MEMORY bytes of additional memory
(RLIMIT_AS), of the reader and the programs that it starts. Faults are printed with the command that
repeats them, stored in --keep, and make the exit code 1.
"""

import argparse
import contextlib
import json
import multiprocessing
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lotus.common.errors import LotusError
from native_map.errors import UnusableError
from tools.bench import provenance
from tools.fuzz import attacks
from tools.fuzz import run_attacks as attacks_runs
from tools.fuzz.changes import SCRATCH, Passed, Reader, as_json, changed
from tools.fuzz.files import (
    make_csv,
    make_elf,
    make_list,
    make_map,
    make_mapping,
    make_page,
    make_perf,
    make_plan,
    make_stacks,
    make_sweep,
    make_torch,
    make_tuned,
    read_csv,
    read_elf,
    read_list,
    read_map,
    read_mapping,
    read_page,
    read_perf,
    read_plan,
    read_stacks,
    read_sweep,
    read_torch,
    read_tuned,
)
from tools.fuzz.runs import (
    lines_from,
    log_from,
    packed,
    read_live,
    read_log,
    read_report,
    read_tables,
    run_from,
    unpacked,
    valid_logs,
)

CPU_S = 10.0  # of one input, what its reader starts included
MEMORY = 1 << 30  # bytes more than before the first input
ATTACKS = 500  # one input of so many is an attack
LARGEST = 7.2  # of these the size: its logarithm, and most are far smaller
REFUSED = (LotusError, UnusableError)


@dataclass
class Tally:
    """The results of some inputs of one reader."""

    inputs: int = 0
    passed: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        self.inputs += other.inputs
        self.passed += other.passed
        self.refused += other.refused
        self.slowest_s = max(self.slowest_s, other.slowest_s)
        self.reasons.update(other.reasons)
        self.faults += other.faults


class Slow(BaseException):
    """An input took too long."""


def _readers() -> list[Reader]:
    known = valid_logs()
    lines = known["lines"][0]

    def log(dice: random.Random) -> bytes:
        return log_from(dice.choice(known["logs"]), dice)

    def whole(dice: random.Random) -> bytes:
        return run_from(known, dice)

    def manifest(dice: random.Random) -> bytes:
        content = json.loads(known["manifest"][0])
        return packed(as_json(changed(content, dice, frozenset({"schema"})), dice), lines)

    def processes(dice: random.Random) -> bytes:
        return packed(known["manifest"][0], lines_from(lines, dice))

    def read_small(folder: Path, data: bytes, passed: Passed) -> None:
        from lotus.format import process_reports
        from lotus.reading.logs.run_json import read as read_manifest

        (folder / "R").mkdir(exist_ok=True)
        for name, part in zip(("run.json", "processes.jsonl"), unpacked(data), strict=True):
            (folder / "R" / name).write_bytes(part)
        read_manifest(folder / "R")
        passed()
        process_reports.read(folder / "R")

    plain = random.Random(0)
    manifest_of = known["manifest"][0]
    as_manifest = {
        name: lambda size, maker=maker: packed(maker(size), lines)
        for name, maker in attacks_runs.json_of(manifest_of).items()
    }
    as_lines = {
        name: lambda size, maker=maker: packed(manifest_of, maker(size))
        for name, maker in attacks_runs.lines_of(lines).items()
    }
    as_log = {
        f"{name} {number}": lambda size, maker=maker: packed(manifest_of, lines, maker(size))
        for number, log in enumerate(known["logs"][:2])
        for name, maker in attacks_runs.logs_of(log).items()
    }
    as_run = {**as_manifest, **{f"lines: {name}": maker for name, maker in as_lines.items()}}
    as_run |= {f"log: {name}": maker for name, maker in as_log.items()}
    of_logs = attacks_runs.logs_of(known["logs"][0])
    return [
        Reader("event log", 0.27, log, read_log, of_logs),
        Reader("state page", 0.10, make_page, read_page, attacks_runs.pages_of(make_page(plain))),
        Reader("perf.data", 0.10, make_perf, read_perf, attacks.PERF),
        Reader("ELF file", 0.06, make_elf, read_elf, attacks.ELF),
        Reader("perf map", 0.03, make_map, read_map, attacks.MAPS),
        Reader("perf list", 0.02, make_list, read_list, attacks.LISTS),
        Reader("py-spy trace", 0.05, make_stacks, read_stacks, attacks.STACKS),
        Reader("CSV profile", 0.08, make_csv, read_csv, attacks.PROFILES),
        Reader("mapping.json", 0.05, make_mapping, read_mapping, _json(make_mapping)),
        Reader("tuned.json", 0.06, make_tuned, read_tuned, _json(make_tuned)),
        Reader("balance.json", 0.05, make_plan, read_plan, _json(make_plan)),
        Reader("sweep.json", 0.02, make_sweep, read_sweep, _json(make_sweep)),
        Reader("run.json", 0.05, manifest, read_small, as_manifest),
        Reader("processes.jsonl", 0.04, processes, read_small, as_lines),
        Reader("torch trace", 0.03, make_torch, read_torch, _json(make_torch)),
        Reader("live", 0.005, whole, read_live, as_run),
        Reader("run: tables", 0.004, whole, read_tables, as_run),
        Reader("run: report", 0.001, whole, read_report, as_run),
    ]


def _json(make: Callable[[random.Random], bytes]) -> dict[str, attacks.Maker]:
    """Attacks on the reader of the documents that `make` gives, the first that is one."""
    for seed in range(1000):
        data = make(random.Random(seed))
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(json.loads(data), dict):
                return attacks_runs.json_of(data)
    raise AssertionError("no document")


def _too_long(number: int, frame: object) -> None:
    raise Slow


def input_of(reader: Reader, seed: int, number: int) -> bytes:
    """Return the input of that number."""
    dice = random.Random(f"{seed} {reader.name} {number}")
    if reader.attacks and number % ATTACKS == ATTACKS - 1:
        name = dice.choice(list(reader.attacks))
        return reader.attacks[name](int(10 ** dice.triangular(2.0, LARGEST, 4.0)))
    return reader.make(dice)


def _peak() -> int:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(kind).ru_maxrss for kind in kinds) << 10


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _bound_memory() -> None:
    """Limit this process to MEMORY more than it uses now."""
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, hard))


def tried(reader: Reader, folder: Path, seed: int, numbers: range, keep: Path | None) -> Tally:
    """Read the inputs of these numbers, in a process of which they may use SIGPROF."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    try:
        return _tried(reader, folder, seed, numbers, keep)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def _tried(reader: Reader, folder: Path, seed: int, numbers: range, keep: Path | None) -> Tally:
    tally = Tally()
    signal.signal(signal.SIGPROF, _too_long)
    warnings.simplefilter("ignore")
    before = 0
    for number in numbers:
        data = input_of(reader, seed, number)
        passed: list[bool] = []
        fault = ""
        began = _cpu_s()
        try:
            signal.setitimer(signal.ITIMER_PROF, CPU_S)
            try:
                reader.read(folder, data, lambda passed=passed: passed.append(True))
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
        except REFUSED as error:
            tally.refused += 1
            tally.reasons[type(error).__name__] += 1
            text = str(error)
            if "\n" in text or not text or len(text) > 2000:
                fault = f"refused in no line: {text!r:.300}"
        except (Exception, Slow) as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error!s:.200} at {Path(place.filename).name}"
            fault = f"{what}:{place.lineno}"
            tally.reasons[type(error).__name__] += 1
        took = _cpu_s() - began
        if took > CPU_S and not fault:  # in a program that it started, or where no signal came in
            fault = f"took {took:.1f} s of CPU time"
        if not before:  # what is imported at the first input is nobody's fault
            before = _peak()
            _bound_memory()
        elif _peak() - before > MEMORY:
            fault = fault or f"memory grew by {(_peak() - before) >> 20} MiB"
            before = _peak()
        if fault:
            tally.faults.append((number, fault))
            if keep is not None:
                keep.mkdir(exist_ok=True)
                name = reader.name.replace(" ", "-").replace(":", "")
                (keep / f"{name}-{seed}-{number}").write_bytes(data)
        tally.inputs += 1
        tally.passed += bool(passed)
        tally.slowest_s = max(tally.slowest_s, took)
    return tally


def _part(job: tuple[str, int, int, int, str | None]) -> tuple[str, Tally]:
    name, seed, first, last, keep = job
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    (reader,) = [reader for reader in _known() if reader.name == name]
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="lotus-fuzz-") as folder:
        kept = None if keep is None else Path(keep)
        return name, tried(reader, Path(folder), seed, range(first, last), kept)


_KNOWN: list[Reader] = []


def _known() -> list[Reader]:
    if not _KNOWN:
        # Once, before the processes of the parts are forked.
        import lotus.export.timelines.torch_trace
        import lotus.reporters.run.terminal
        import lotus.sweep.sweep_record  # noqa: F401
        import native_map.paper.importers
        import native_map.recording.py_spy
        import native_map.symbols.symbolizer  # noqa: F401

        _KNOWN.extend(_readers())
    return _KNOWN


def fuzz(
    inputs: int,
    seed: int = 0,
    processes: int = 1,
    only: list[str] | None = None,
    keep: str | None = None,
) -> dict[str, Tally]:
    """Read `inputs` inputs, distributed over the readers; at least one for each."""
    chosen = [reader for reader in _known() if not only or reader.name in only]
    whole = sum(reader.share for reader in chosen)
    jobs = []
    for reader in chosen:
        count = max(1, round(inputs * reader.share / whole))
        step = max(1000, min(20_000, -(-count // 4), round(20_000 * reader.share)))
        for first in range(0, count, step):
            jobs.append((reader.name, seed, first, min(first + step, count), keep))
    tallies = {reader.name: Tally() for reader in chosen}
    # Readers take turns, so that a run that is stopped has tried all.
    jobs.sort(key=lambda job: (job[2] / max(1, inputs * _share(job[0])), job[0]))
    # A process for each part: its memory is then that of its inputs.
    context = multiprocessing.get_context("fork")
    # If stopped early (Ctrl-C, SIGTERM), it prints what it has found so far.
    with (
        contextlib.suppress(KeyboardInterrupt),
        context.Pool(processes, maxtasksperchild=1) as pool,
    ):
        done = 0
        for name, part in pool.imap_unordered(_part, jobs):
            tallies[name].add(part)
            done += part.inputs
            for number, fault in part.faults[:3]:
                print(f"FAULT {name}:{number} (seed {seed}): {fault}", flush=True)
            if done // 50_000 > (done - part.inputs) // 50_000:
                print(f"{done:,} inputs", file=sys.stderr, flush=True)
    return tallies


def _share(name: str) -> float:
    return next(reader.share for reader in _known() if reader.name == name)


def table(tallies: dict[str, Tally]) -> str:
    """Return a line per reader, and one for all."""
    rows = [
        f"{'reader':16} {'inputs':>10} {'past header':>18} {'refused':>10} {'slowest':>9} faults"
    ]
    whole = Tally()
    for name, tally in tallies.items():
        rows.append(_line(name, tally))
        whole.add(tally)
    rows.append(_line("all", whole))
    rows.append(f"raised: {dict(whole.reasons)}")
    return "\n".join(rows)


def _line(name: str, tally: Tally) -> str:
    share = f"{tally.passed:,} ({tally.passed / max(tally.inputs, 1):.0%})"
    times = f"{tally.slowest_s:.2f} s"
    faults = len(tally.faults)
    return f"{name:16} {tally.inputs:>10,} {share:>18} {tally.refused:>10,} {times:>9} {faults}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--attacks", type=int, metavar="N", help="one input of N is an attack")
    parser.add_argument("--only", nargs="*", metavar="READER")
    parser.add_argument("--keep", metavar="DIRECTORY", help="write inputs that make faults there")
    parser.add_argument("--input", metavar="READER:NUMBER", help="one input, with its traceback")
    args = parser.parse_args()
    if args.attacks:
        global ATTACKS
        ATTACKS = args.attacks
    if args.input:
        name, _, number = args.input.rpartition(":")
        (reader,) = [reader for reader in _known() if reader.name == name]
        with tempfile.TemporaryDirectory() as folder:
            data = input_of(reader, args.seed, int(number))
            reader.read(Path(folder), data, lambda: print("past the header"))
        return 0
    print(f"{provenance.cpus()}; Python {sys.version.split()[0]}")
    print(f"commit {provenance.commit()}; {time.strftime('%Y-%m-%d')}; seed {args.seed}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    began = time.monotonic()
    tallies = fuzz(args.inputs, args.seed, args.processes, args.only, args.keep)
    print(table(tallies))
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if any(tally.faults for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
