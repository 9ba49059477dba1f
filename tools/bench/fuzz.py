"""Feeds damaged and mad files to every reader: it answers, or refuses in one line, in bounds.

    PYTHONPATH=. python tools/bench/fuzz.py [--inputs 1000000] [--seed 0] [--processes 2]
        [--only READER ...] [--keep DIRECTORY] [--input READER:NUMBER]

An input is a valid file that was changed in one to four places: numbers become extreme ones, parts
are left out, doubled, exchanged and put elsewhere, JSON values become others; checksums and lengths
are then put right in most of them, as what has a wrong one is refused before anything is done with
it. A few are cut or have any bits flipped. Each input follows from the seed and its number alone.

"Past the header" are inputs whose first check (magic number, checksum, schema, form) passed, so
that their contents were read. Anything but a result or a refusal is a fault: another exception,
more than CPU_S of processor time, more than MEMORY of additional memory. Faults are printed with
what makes them again, kept with --keep, and make the exit code 1.
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
from dataclasses import dataclass, field
from pathlib import Path

from lotus.errors import LotusError
from native_map.errors import Unusable
from tools.bench import provenance
from tools.bench.fuzz_changes import SCRATCH, Passed, Reader, as_json, changed
from tools.bench.fuzz_files import (
    make_csv,
    make_mapping,
    make_page,
    make_perf,
    make_plan,
    make_stacks,
    make_sweep,
    make_torch,
    make_tuned,
    read_csv,
    read_mapping,
    read_page,
    read_perf,
    read_plan,
    read_stacks,
    read_sweep,
    read_torch,
    read_tuned,
)
from tools.bench.fuzz_runs import (
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

CPU_S = 20.0  # of one input, the first ones with their imports too
MEMORY = 512 << 20  # bytes more than before the first input
REFUSED = (LotusError, Unusable)


@dataclass
class Found:
    """What came of some inputs of one reader."""

    inputs: int = 0
    passed: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: "Found") -> None:
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
        from lotus.run import _manifest, _reports

        (folder / "R").mkdir(exist_ok=True)
        for name, part in zip(("run.json", "processes.jsonl"), unpacked(data), strict=True):
            (folder / "R" / name).write_bytes(part)
        _manifest(folder / "R")
        passed()
        _reports(folder / "R", [])

    return [
        Reader("event log", 0.30, log, read_log),
        Reader("state page", 0.12, make_page, read_page),
        Reader("perf.data", 0.10, make_perf, read_perf),
        Reader("py-spy trace", 0.05, make_stacks, read_stacks),
        Reader("CSV profile", 0.10, make_csv, read_csv),
        Reader("mapping.json", 0.05, make_mapping, read_mapping),
        Reader("tuned.json", 0.08, make_tuned, read_tuned),
        Reader("balance.json", 0.05, make_plan, read_plan),
        Reader("sweep.json", 0.02, make_sweep, read_sweep),
        Reader("run.json", 0.05, manifest, read_small),
        Reader("processes.jsonl", 0.04, processes, read_small),
        Reader("torch trace", 0.03, make_torch, read_torch),
        Reader("live", 0.005, whole, read_live),
        Reader("run: tables", 0.004, whole, read_tables),
        Reader("run: report", 0.001, whole, read_report),
    ]


def _too_long(number: int, frame: object) -> None:
    raise Slow


def input_of(reader: Reader, seed: int, number: int) -> bytes:
    """The input of that number."""
    return reader.make(random.Random(f"{seed} {reader.name} {number}"))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def tried(reader: Reader, folder: Path, seed: int, numbers: range, keep: Path | None) -> Found:
    """Read the inputs of these numbers, in a process of which they may use SIGPROF."""
    found = Found()
    signal.signal(signal.SIGPROF, _too_long)
    warnings.simplefilter("ignore")
    before = 0
    for number in numbers:
        data = input_of(reader, seed, number)
        passed: list[bool] = []
        fault = ""
        began = time.process_time()
        try:
            signal.setitimer(signal.ITIMER_PROF, CPU_S)
            try:
                reader.read(folder, data, lambda passed=passed: passed.append(True))
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
        except REFUSED as error:
            found.refused += 1
            found.reasons[type(error).__name__] += 1
            text = str(error)
            if "\n" in text or not text or len(text) > 2000:
                fault = f"refused in no line: {text!r:.300}"
        except (Exception, Slow) as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error!s:.200} at {Path(place.filename).name}"
            fault = f"{what}:{place.lineno}"
            found.reasons[type(error).__name__] += 1
        if not before:  # what is imported at the first input is nobody's fault
            before = _peak()
        elif _peak() - before > MEMORY:
            fault = fault or f"memory grew by {(_peak() - before) >> 20} MiB"
            before = _peak()
        if fault:
            found.faults.append((number, fault))
            if keep is not None:
                keep.mkdir(exist_ok=True)
                name = reader.name.replace(" ", "-").replace(":", "")
                (keep / f"{name}-{seed}-{number}").write_bytes(data)
        found.inputs += 1
        found.passed += bool(passed)
        found.slowest_s = max(found.slowest_s, time.process_time() - began)
    return found


def _part(job: tuple[str, int, int, int, str | None]) -> tuple[str, Found]:
    name, seed, first, last, keep = job
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    (reader,) = [one for one in _known() if one.name == name]
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="lotus-fuzz-") as folder:
        kept = None if keep is None else Path(keep)
        return name, tried(reader, Path(folder), seed, range(first, last), kept)


_KNOWN: list[Reader] = []


def _known() -> list[Reader]:
    if not _KNOWN:
        # Once, before the processes of the parts are forked.
        import lotus.export.torch_trace
        import lotus.reporters.terminal
        import lotus.sweep  # noqa: F401
        import native_map.importers
        import native_map.py_spy  # noqa: F401

        _KNOWN.extend(_readers())
    return _KNOWN


def fuzz(
    inputs: int,
    seed: int = 0,
    processes: int = 1,
    only: list[str] | None = None,
    keep: str | None = None,
) -> dict[str, Found]:
    """Read so many inputs, shared out over the readers; at least one of each."""
    chosen = [one for one in _known() if not only or one.name in only]
    whole = sum(one.share for one in chosen)
    jobs = []
    for one in chosen:
        count = max(1, round(inputs * one.share / whole))
        step = max(1000, min(20_000, -(-count // 4), round(20_000 * one.share)))
        for first in range(0, count, step):
            jobs.append((one.name, seed, first, min(first + step, count), keep))
    found = {one.name: Found() for one in chosen}
    # Readers take turns, so that a run that is stopped has tried all.
    jobs.sort(key=lambda job: (job[2] / max(1, inputs * _share(job[0])), job[0]))
    # A process for each part: its memory is then that of its inputs.
    context = multiprocessing.get_context("fork")
    # Stopped early (Ctrl-C, SIGTERM) it tells what it has found so far.
    with (
        contextlib.suppress(KeyboardInterrupt),
        context.Pool(processes, maxtasksperchild=1) as pool,
    ):
        done = 0
        for name, part in pool.imap_unordered(_part, jobs):
            found[name].add(part)
            done += part.inputs
            for number, fault in part.faults[:3]:
                print(f"FAULT {name}:{number} (seed {seed}): {fault}", flush=True)
            if done // 50_000 > (done - part.inputs) // 50_000:
                print(f"{done:,} inputs", file=sys.stderr, flush=True)
    return found


def _share(name: str) -> float:
    return next(one.share for one in _known() if one.name == name)


def table(found: dict[str, Found]) -> str:
    """A line a reader, and one for all."""
    rows = [
        f"{'reader':16} {'inputs':>10} {'past header':>18} {'refused':>10} {'slowest':>9} faults"
    ]
    whole = Found()
    for name, one in found.items():
        rows.append(_line(name, one))
        whole.add(one)
    rows.append(_line("all", whole))
    rows.append(f"raised: {dict(whole.reasons)}")
    return "\n".join(rows)


def _line(name: str, one: Found) -> str:
    share = f"{one.passed:,} ({one.passed / max(one.inputs, 1):.0%})"
    times = f"{one.slowest_s:.2f} s"
    return (
        f"{name:16} {one.inputs:>10,} {share:>18} {one.refused:>10,} {times:>9} {len(one.faults)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", nargs="*", metavar="READER")
    parser.add_argument("--keep", metavar="DIRECTORY", help="write inputs that make faults there")
    parser.add_argument("--input", metavar="READER:NUMBER", help="one input, with its traceback")
    args = parser.parse_args()
    if args.input:
        name, _, number = args.input.rpartition(":")
        (reader,) = [one for one in _known() if one.name == name]
        with tempfile.TemporaryDirectory() as folder:
            data = input_of(reader, args.seed, int(number))
            reader.read(Path(folder), data, lambda: print("past the header"))
        return 0
    print(f"{provenance.cpus()}; Python {sys.version.split()[0]}")
    print(f"commit {provenance.commit()}; {time.strftime('%Y-%m-%d')}; seed {args.seed}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    began = time.monotonic()
    found = fuzz(args.inputs, args.seed, args.processes, args.only, args.keep)
    print(table(found))
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if any(one.faults for one in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
