"""Measures the error of the share of waits that `lotus attach` reports.

    PYTHONPATH=. python tools/bench/attach/wait_shares.py [--seconds 12] [--times 3] [--after 5]
        [--data DIRECTORY] [--rows FILE] [--keep DIRECTORY] [NAME ...]

The six demos, ten programs of tests/diagnosis, and loops with known steps (2 to 500 ms) run
untraced, long enough to be observed. Each logs when `iter`, `next` and the end of its workers begin
and end, which takes a microsecond. --after seconds after the first worker started (or after 4 s of
CPU time since torch was imported), it is observed --times times for --seconds. Printed is the share
of the loop in `iter` and `next`: by the program's own clock within the observed time, and by
attach, with its 95 % interval; and how many of these intervals contain the program's value.
Recordings stay in --keep, from which a later call evaluates them again; rows already in --rows are
not measured again.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lotus.analysis.attached.verdict import sampled_verdict
from lotus.attach.files import attached_run
from lotus.attach.threads.thread_readings import children_of
from lotus.common.numbers.statistics import wilson
from tools.bench import provenance
from tools.bench.attach import beside_trace, first_causes
from tools.bench.row_file import RowFile, printed

KNOWN = "known"
_BYTES = bytes(20_000)
_LOTUS = (sys.executable, "-m", "lotus")
_LIMIT_S, _START_CPU_S, _MOST = 180, 4, 1 << 22
ITER, NEXT, SHUTDOWN = 1, 2, 3
_FAILED = 10
# What the program runs first. It writes (kind, nanoseconds, line that asked): a kind below 0 is an
# end, below -_FAILED one by an exception, as at the end of an epoch.
_STAMPS = f"""\
MOST, FAILED = {_MOST}, {_FAILED}
"""
_STAMPS += """\
import mmap, os, struct, sys, time
import torch.utils.data.dataloader as loaders
with open(os.environ["STAMPS"], "wb") as file:
    file.truncate(24 * MOST)
with open(os.environ["STAMPS"], "r+b") as file:
    page = mmap.mmap(file.fileno(), 0)
owner, place, pack = os.getpid(), 0, struct.Struct("<qqq").pack_into

def stamp(kind, line):
    global place
    if os.getpid() == owner and place < MOST:
        pack(page, 24 * place, kind, time.monotonic_ns(), line)
        place += 1

def timed(owner, name, kind):
    function = getattr(owner, name)
    def stamped(*args, **kwargs):
        line = sys._getframe(1).f_lineno
        stamp(kind, line)
        try:
            result = function(*args, **kwargs)
        except BaseException:
            stamp(-kind - FAILED, line)
            raise
        stamp(-kind, line)
        return result
    setattr(owner, name, stamped)

timed(loaders.DataLoader, "__iter__", 1)
timed(loaders._BaseDataLoaderIter, "__next__", 2)
timed(loaders._MultiProcessingDataLoaderIter, "_shutdown_workers", 3)
sys.argv = sys.argv[1:]
if sys.argv[0] == "-c":
    exec(sys.argv.pop(1), globals())
else:
    __file__ = sys.argv[0]
    sys.path.insert(0, __file__.rpartition("/")[0])
    exec(compile(open(__file__).read(), __file__, "exec"), globals())
"""
# Milliseconds of a step and of a batch that one worker makes, both computing.
LOOPS = ("2,4", "5,5", "10,30", "50,60", "200,300", "500,700")
PROGRAMS = (*beside_trace.PROGRAMS, *((KNOWN, times) for times in LOOPS))


def train(times: str) -> None:
    """Compute for so many milliseconds in each step and each batch, until it is ended."""
    import torch

    step_s, batch_s = (float(ms) / 1e3 for ms in times.split(","))

    def compute(seconds: float) -> None:
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            zlib.crc32(_BYTES)

    class Batches(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 1 << 40

        def __getitem__(self, index: int) -> torch.Tensor:
            compute(batch_s)
            return torch.zeros(8)

    for _ in torch.utils.data.DataLoader(Batches(), batch_size=None, num_workers=1):
        compute(step_s)


def command(corpus: str, name: str, data: Path) -> list[str]:
    """Return a program that runs for longer than it is watched, and writes its stamps."""
    if corpus == KNOWN:
        words = [sys.executable, __file__, f"--train={name}"]
    else:
        words = beside_trace.command(corpus, name, data)
    return [sys.executable, "-c", _STAMPS, *words[1:]]


def watch(corpus: str, name: str, args: argparse.Namespace, folder: Path) -> None:
    """Run a program and watch it --times; leaves `seen-N` and `stamps` in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    child = subprocess.Popen(
        command(corpus, name, args.data),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "STAMPS": str(folder / "stamps")},
    )  # fmt: skip
    try:
        _wait_for(child, lambda: first_causes.has_torch(child.pid))
        loaded = first_causes.cpu_s(child.pid)
        _wait_for(
            child,
            lambda: children_of(child.pid) or first_causes.cpu_s(child.pid) - loaded > _START_CPU_S,
        )
        time.sleep(args.after)
        for number in range(args.times):
            words = [*_LOTUS, "attach", str(child.pid), f"--seconds={args.seconds}"]
            out = folder / f"seen-{number}"
            subprocess.run([*words, "-o", str(out)], capture_output=True)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _wait_for(child: subprocess.Popen[bytes], known: Any) -> None:
    until = time.monotonic() + _LIMIT_S
    while not known():
        if child.poll() is not None or time.monotonic() > until:
            raise SystemExit("the program did not begin to load data")
        time.sleep(0.05)


Intervals = list[tuple[int, int]]


def waits_of(stamps: np.ndarray, lines: range, begin: float, end: float) -> float:
    """Share of `iter` and `next`, without shut-downs, in a stretch of the loop at these lines."""
    waits, loops, downs = _intervals(stamps, lines, int(end))
    waited = _within(waits, begin, end) - sum(
        _within([(max(first, begin), min(last, end))], *down)
        for down in downs
        for first, last in waits
        if first <= down[0] and down[1] <= last
    )
    whole = _within(loops, begin, end)
    return waited / whole if whole > 0 else float("nan")


def _intervals(
    stamps: np.ndarray, lines: range, end: int
) -> tuple[Intervals, Intervals, Intervals]:
    """(`iter` and `next`, epochs, shut-downs). An epoch that is broken off lasts until the next."""
    waits, loops, downs = [], [], []
    opened: dict[int, int] = {}
    epoch: int | None = None
    for kind, at, line in stamps.tolist():
        if kind > 0:
            opened[kind] = at
            if kind == ITER and line in lines:
                if epoch is not None:
                    loops.append((epoch, at))
                epoch = at
            continue
        failed = kind < -_FAILED
        kind = -kind - _FAILED * failed
        if kind not in opened:
            continue
        span = opened.pop(kind), at
        if kind == SHUTDOWN:
            downs.append(span)
        elif line in lines:
            waits.append(span)
            if failed and kind == NEXT and epoch is not None:
                loops.append((epoch, at))
                epoch = None
    if epoch is not None:
        loops.append((epoch, end))
    waits += [(opened[kind], end) for kind in (ITER, NEXT) if kind in opened]
    return waits, loops, downs


def _within(spans: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    return sum(max(min(last, end) - max(first, begin), 0.0) for first, last in spans)


def judged(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the results of both for each time that a program was watched."""
    stamps = np.fromfile(folder / "stamps", np.int64).reshape(-1, 3)
    stamps = stamps[: int(np.flatnonzero(stamps[:, 0])[-1]) + 1]
    for seen in sorted(folder.glob("seen-*")):
        if not attached_run.is_attached(seen):
            continue
        evidence = attached_run.load(seen)
        summary = sampled_verdict.summarise(evidence)
        if not summary.loops or summary.loops[0].verdict.kind == "unknown":
            continue  # too little was seen, and attach says so
        loop = summary.loops[0]
        site, verdict = evidence.loops.iloc[loop.loop], loop.verdict
        lines = range(int(site["head"]), int(site["last"]) + 1) if site["last"] else range(1 << 31)
        times = evidence.samples["time_ns"]
        begin = float(times.min()) + loop.left_out_ns
        startup = verdict.startup_share
        yield {
            "waits": waits_of(stamps, lines, begin, float(times.max())),
            "share": verdict.input_share + startup,
            "low": verdict.input_low + startup,
            "high": min(verdict.input_high + startup, 1.0),
        }


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row per program: from --rows if it is there, else measured and appended."""
    file = RowFile(args.rows)
    known = file.by("corpus", "program")
    for corpus, name in PROGRAMS:
        if args.names and name not in args.names:
            continue
        row = known.get((corpus, name))
        if row is None:
            row = {"corpus": corpus, "program": name, "load": round(os.getloadavg()[0], 1)}
            with contextlib.ExitStack() as stack:
                folder = args.keep and args.keep / f"{corpus}-{name}"
                folder = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
                if not (folder / "stamps").exists():
                    watch(corpus, name, args, folder)
                row["watched"] = list(judged(folder))
            file.add(row)
        yield row


def line_of(row: Mapping[str, Any]) -> str:
    """Return a row of a Markdown table."""
    each = []
    for seen in row["watched"]:
        interval = f" ({seen['low']:.0%} to {seen['high']:.0%})" if np.isfinite(seen["low"]) else ""
        outside = " (outside)" if interval and not _holds(seen) else ""
        each.append(f"{seen['waits']:.0%} | {seen['share']:.0%}{interval}{outside}")
    return f"| `{row['corpus']}/{row['program']}` | {row['load']} | {' | '.join(each)} |"


def _holds(seen: Mapping[str, float]) -> bool:
    return seen["low"] <= seen["waits"] <= seen["high"]


def summary(shown: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield how often the interval holds, its width, and the error of attach."""
    seen = [each for row in shown for each in row["watched"] if np.isfinite(each["low"])]
    held = sum(map(_holds, seen))
    low, high = wilson(held / len(seen), float(len(seen)))
    off = [abs(each["share"] - each["waits"]) for each in seen]
    wide = [each["high"] - each["low"] for each in seen]
    yield f"within the interval: {held} of {len(seen)} ({low:.0%} to {high:.0%})"
    yield f"off by {np.median(off):.1%} (median; at most {max(off):.1%})"
    yield f"width: {np.median(wide):.1%} (median; {min(wide):.1%} to {max(wide):.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs (default: all)")
    parser.add_argument("--seconds", type=float, default=12.0, help="how long to watch")
    parser.add_argument("--times", type=int, default=3, help="how often")
    parser.add_argument("--after", type=float, default=5.0, help="seconds after the first worker")
    parser.add_argument("--data", type=Path, default=provenance.ROOT / "build" / "data")
    parser.add_argument("--rows", type=Path, help="file of rows, a JSON object a line")
    parser.add_argument("--keep", type=Path, help="where what was recorded stays")
    parser.add_argument("--train", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        train(args.train)
        return
    print(provenance.header(more=f"\nwatched  {args.seconds:g} s, {args.after:g} s after a worker"))
    print("| program | load |" + " by its clock | by attach |" * args.times)
    print("|---|---|" + "---|---|" * args.times)
    print("\n".join(summary(printed(rows(args), line_of))))


if __name__ == "__main__":
    main()
