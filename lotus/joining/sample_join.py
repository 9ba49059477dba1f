"""Joins a run's samples with its operations, to find the C and C++ functions of each."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lotus.common.errors import LotusError
from lotus.common.terminal.progress import Advance
from lotus.format import job_ranks
from lotus.joining import perf_clock
from lotus.joining.recorded_run import RecordedRun
from native_map.errors import UnusableError
from native_map.estimate import count_estimates, interval_join, validation
from native_map.recording import perf_data
from native_map.recording.perf_recording import PerfRecording
from native_map.symbols.symbolizer import Symbols

PERF_DATA = "perf.data"
CHUNK = 1 << 20
_SOFTWARE, _CPU_CLOCK, _TASK_CLOCK = 1, 0, 1
UNTRUSTED = (
    "this run was recorded by another user, on another machine, or by an earlier version of lotus, "
    "so no file that it names was opened: --trust opens them"
)
TO_COMPARE = "to compare them record with"  # in a note on counts that are of other modes


@dataclass(frozen=True)
class Mapped:
    """The result of joining samples with operations.

    events       what was sampled, as perf names it
    functions    one row per kind, operation, helper_of, library, function and event: samples,
                 share (of the operation's samples of this event), count, low and high (95 %)
    operations   one row per kind, operation, helper_of and event: samples, count, low, high; where
                 exact counts of the event exist also calibrated, calibrated_low, calibrated_high
                 and exact (of the intervals that were counted and sampled from end to end)
    calibration  one row per thread and event: exact over sampled count, `factor`, and its `error`
    compared     one row per kind, operation and event that was counted too: see
                 native_map.estimate.validation.validate
    books        one row per event: attributed + unattributed + lost = recorded, missing (0)
    facts        of the machine and perf that recorded
    notes        what could not be read, named or compared
    """

    events: list[str]
    functions: pd.DataFrame
    operations: pd.DataFrame
    calibration: pd.DataFrame
    compared: pd.DataFrame
    books: pd.DataFrame
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def map_if_sampled(run: RecordedRun, progress: Advance | None = None) -> Mapped | None:
    """Join the run's own samples; returns None if there are none. Raises LotusError."""
    sampled = (Path(run.path) / PERF_DATA).exists()
    return map_run(run, progress=progress) if sampled else None


def map_run(
    run: RecordedRun,
    recording: "PerfRecording | None" = None,
    kernel: bool = False,
    progress: Advance | None = None,
) -> Mapped:
    """Join the samples of `recording` (default: the run's own perf.data) with the run's intervals.

    `kernel` names the kernel's functions if the system allows it. `progress` is called with the
    number of samples done and in all. Raises LotusError if there is nothing to join.
    """
    with _as_lotus_errors():
        return _map(run, recorded(run) if recording is None else recording, kernel, progress)


def recorded(run: RecordedRun) -> PerfRecording:
    """Return the run's own samples. Raises LotusError with the reason if there are none."""
    path = run.path / PERF_DATA
    if path.exists():
        if path.is_symlink() or not path.is_file():
            raise LotusError(
                f"{path} is not a regular file and was not read; name one with --perf-data"
            )
        return read(path, run.trusted)
    problem = problem_of(run)
    raise LotusError(
        f"there are no samples in {run.path}: "
        + (f"{problem}; then " if problem else "")
        + "record with lotus trace --perf -- COMMAND, or name a file with --perf-data"
    )


def problem_of(run: RecordedRun) -> str:
    """Return why requested samples of perf are missing; else ""."""
    if paths := job_ranks.not_merged(run.manifest.get("merged") or ()).get(job_ranks.SAMPLES):
        return f"they stayed in the hosts' runs: lotus map reads one of {', '.join(paths)}"
    recorder = (run.manifest.get("recorders") or {}).get("perf") or {}
    return str(recorder.get("problem") or "")


def read(path: Path, trusted: bool = False) -> PerfRecording:
    """Read a perf.data file; if it is `trusted`, perf reads what only perf can read.

    Raises LotusError.
    """
    try:
        return perf_data.read(path, trusted=trusted)
    except UnusableError as error:
        hint = "" if trusted else "; if you know where it is from: lotus map --trust RUN"
        raise LotusError(f"{error}{hint}") from None


@contextlib.contextmanager
def _as_lotus_errors() -> Iterator[None]:
    try:
        yield
    except UnusableError as error:
        raise LotusError(str(error)) from None


def _map(
    run: RecordedRun, recording: PerfRecording, kernel: bool, progress: Advance | None
) -> Mapped:
    notes = [*recording.notes, *recording.damage]
    if not len(recording):
        raise LotusError(
            f"{recording.path} holds no samples"
            + (f" ({recording.damage[0]})" if recording.damage else "")
            + "; the times of `lotus report` need none, and `lotus doctor` says what can be sampled"
        )
    if recording.clock != "monotonic":
        recording, how = perf_clock.aligned(run, recording)
        notes.append(how)
    intervals = run.intervals
    index = interval_join.index(intervals)
    notes += _defects(index)
    partners = exact_partners(run, recording, notes)
    exact_rows, counted = _exact_rows(run, recording, partners)
    tally = count_estimates.Tally(index, intervals, recording.events, counted)
    if not run.trusted:
        notes.append(UNTRUSTED)
    symbols = Symbols(kernel=kernel, recorded_s=_recorded_s(run), trusted=run.trusted)
    _add_samples(tally, index, recording, symbols, progress)
    sums = tally.table()
    if not sums["attributed"].any():
        notes.append(_why_nothing(run, recording))
    groups = count_estimates.Groups.of(index, intervals)
    own, scans = {}, {}
    for event in recording.events:
        partner = partners.get(event)
        if partner is not None:
            own[event] = count_estimates.own_counts(index, exact_rows, partner, len(intervals))
        mine = sums[sums["event"] == event]
        scans[event] = count_estimates.scan(index, groups, mine, own.get(event))
    throttled = _throttled(recording, intervals)
    factors = (
        count_estimates.calibration(sums, index, own, counted, scans, throttled) if own else None
    )
    operations = count_estimates.operations(sums, scans, factors)
    totals = _exact_totals(groups, own, counted)
    functions = count_estimates.functions(sums, operations, totals if len(totals) else None)
    calibrated = count_estimates.operations(sums[sums["counted"]], scans, factors) if own else None
    operations = operations.merge(totals, on=["kind", "operation", "event"], how="left")
    if kernel and not (functions["library"] == "[kernel]").any():
        notes.append("no sample is of the kernel: record with lotus trace --perf-kernel")
    in_file = dict(zip(recording.events, recording.sampled, strict=True))
    reconciled = interval_join.sample_reconciliation(sums, in_file, _lost_samples(recording))
    return Mapped(
        events=list(recording.events),
        functions=functions,
        operations=operations,
        calibration=factors if factors is not None else pd.DataFrame(columns=["pid", "tid"]),
        compared=_compared(validation.exact_totals(index, intervals, own, counted), calibrated),
        books=reconciled,
        facts={**recording.facts, "clock": recording.clock, "reader": recording.reader},
        notes=[*dict.fromkeys([*notes, *symbols.notes])],
    )


def _defects(index: interval_join.Index) -> list[str]:
    """Return what to say of intervals that contradict each other, which a sound clock makes not."""
    wrong = index.crossing + index.reversed
    if not wrong:
        return []
    return [
        f"a clock is defective: {wrong:,} of the run's intervals cross others or end before they "
        "start, so that samples may be in the wrong operation"
    ]


def _exact_rows(
    run: RecordedRun, recording: PerfRecording, partners: dict[str, str]
) -> tuple[pd.DataFrame, Any]:
    """Return (exact counts of `partners`, which intervals were counted and sampled throughout)."""
    intervals, exact = run.intervals, run.exact
    covered = _covered(run, recording)
    counted = np.zeros(len(intervals), np.bool_)
    rows = exact[list(dict.fromkeys(partners.values()))].assign(row=np.arange(len(exact)))
    if partners:
        names = [str(name) for name in rows if name != "row"]
        counted = count_estimates.counted_rows(intervals, rows, covered, names)
        # Samples in the rest of a fetch include the reading of counters; its counts do not.
        counted &= (intervals["kind"] != "fetch").to_numpy()
    return rows, counted


def _add_samples(
    tally: count_estimates.Tally,
    index: interval_join.Index,
    recording: PerfRecording,
    symbols: Symbols,
    progress: Advance | None,
) -> None:
    """Count all samples by interval and function, in bounded memory."""
    done = 0
    for chunk in recording.chunks(CHUNK):
        attributed = index.attribute(chunk)
        functions = symbols.resolve(recording.mappings, chunk, recording.forks, recording.comms)
        attributed["kind"] = interval_join.classify(attributed, functions)
        tally.add(chunk, attributed, functions)
        done += len(chunk)
        if progress is not None:
            progress(done, len(recording))


def _lost_samples(recording: PerfRecording) -> dict[str, int]:
    """Return the number of samples of each event that perf lost."""
    lost = recording.lost
    by_event: dict[str, int] = {}
    for code, count in zip(lost["event"].tolist(), lost["count"].tolist(), strict=True):
        name = recording.events[code] if 0 <= code < len(recording.events) else "(unknown)"
        by_event[name] = by_event.get(name, 0) + count
    return by_event


def _throttled(recording: PerfRecording, intervals: pd.DataFrame) -> pd.DataFrame:
    """Return how long the kernel throttled each thread; if no end is recorded, until the run's."""
    throttles = recording.throttles
    ends = [int(times.max()) for times in (intervals["end_ns"], throttles["time_ns"]) if len(times)]
    return count_estimates.throttled_times(throttles, recording.events, max(ends, default=0))


def _exact_totals(
    groups: count_estimates.Groups, own: dict[str, count_estimates.Floats], counted: Any
) -> pd.DataFrame:
    """Return kind, operation, event, exact: sums of what was counted and sampled throughout.

    An operation is left out unless all its intervals were counted and sampled.
    """
    rows = []
    size = len(groups.kind)
    interval_count = np.bincount(groups.code, minlength=size)
    for event, counts in own.items():
        good = counted & np.isfinite(counts)
        sums = np.bincount(groups.code[good], counts[good], minlength=size)
        complete = np.bincount(groups.code[good], minlength=size) == interval_count
        for code in np.flatnonzero(complete & (interval_count > 0)):
            rows.append((groups.kind[code], groups.operation[code], event, float(sums[code])))
    return pd.DataFrame(rows, columns=["kind", "operation", "event", "exact"])


def _compared(exact: pd.DataFrame, joined: pd.DataFrame | None) -> pd.DataFrame:
    if joined is None or not len(joined):
        return pd.DataFrame(columns=["kind", "operation", "event"])
    return validation.validate(exact, joined)


def exact_partners(run: RecordedRun, recording: PerfRecording, notes: list[str]) -> dict[str, str]:
    """Map each sampled event to the exact count of the same event in the same modes.

    The software clocks have no user-space count: they count all the time of a thread.
    """
    exact = {(event["type"], event["config"]): event for event in run.counted_events}
    partners = {}
    for event in recording.attrs:
        match = re.search(r"(?<=[:/])[a-zA-Z]*$", event.name)
        modes = "".join(sorted(set(match[0]) & set("uk"))) if match else ""
        key = (event.type, event.config)
        if event.type == _SOFTWARE and event.config == _CPU_CLOCK:
            key = (_SOFTWARE, _TASK_CLOCK)
        partner = exact.get(key)
        if partner is None:
            continue
        clock = key == (_SOFTWARE, _TASK_CLOCK)
        counted = "ku" if clock else "".join(sorted(partner["flags"]))
        if (modes or "ku") == counted:
            partners[event.name] = str(partner["name"])
        elif clock:
            notes.append(
                f"{event.name} was sampled in user space, but the exact {partner['name']} counts "
                f"the kernel's work too: {TO_COMPARE} --counters --perf --perf-kernel"
            )
    return partners


def _covered(run: RecordedRun, recording: PerfRecording) -> tuple[int, int]:
    """Return when samples were taken: from perf's being ready, or the first, to the last."""
    first, last = np.iinfo(np.int64).max, 0
    for chunk in recording.chunks(CHUNK):
        times = chunk["time_ns"].to_numpy(np.int64)
        first, last = min(first, int(times.min())), max(last, int(times.max()))
    recorder = (run.manifest.get("recorders") or {}).get("perf") or {}
    ready, end = recorder.get("ready_ns"), recorder.get("end_ns")
    if isinstance(ready, int) and ready <= first:
        first = ready
    if isinstance(end, int) and end >= last and not recorder.get("problem"):
        last = end
    return first, last


def _recorded_s(run: RecordedRun) -> float | None:
    wall, start, end = (run.manifest.get(name) for name in ("start_wall_ns", "start_ns", "end_ns"))
    if not all(isinstance(time_ns, int) for time_ns in (wall, start, end)):
        return None
    return float(wall + end - start) / 1e9  # type: ignore[operator]


def _why_nothing(run: RecordedRun, recording: PerfRecording) -> str:
    own_host, recorded_host = run.manifest.get("host"), recording.facts.get("hostname")
    if own_host and recorded_host and own_host != recorded_host:
        return (
            f"no sample fell into an operation: recorded on {recorded_host}, the run on {own_host}"
        )
    return "no sample fell into an operation: they are of other processes or of another time"
