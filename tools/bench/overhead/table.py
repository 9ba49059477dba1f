"""The statistics and tables of comparison.py: rows in, text out.

A pair is a run with a tool and the run without one of the same round and script. Printed are the
median of the pairs' ratios, its median absolute deviation (both as in pyperf), and the interval
between two of the sorted ratios that contains the true median with 95 % probability or more,
whatever their distribution (with seven pairs: minimum and maximum, 98.4 %).
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tools.bench.measurements import commits_and_days
from tools.bench.overhead import answers

BASE, NOISE = "nothing", "nothing again"
MEASURES = ("wall_s", "loop_s", "cpu_s", "instructions", "peak_bytes")


class Measured(Protocol):
    """The required fields of a line of overhead.csv."""

    round: int
    workload: str
    tool: str
    failed: str


@dataclass(frozen=True)
class Spread:
    """The median of values and its uncertainty; of ratios, less one."""

    median: float
    low: float
    high: float
    deviation: float  # median absolute deviation
    count: int

    @property
    def resolved(self) -> bool:
        """True if the interval excludes 0, with at least six pairs (fewer never reach 95 %)."""
        return self.count >= 6 and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class Cell:
    """The cost of a tool on a workload."""

    workload: str
    tool: str
    ratios: Mapping[str, Sequence[float]]  # of the pairs, less one, by measure
    spreads: Mapping[str, Spread]
    failed: Mapping[str, int]  # how often, by why
    runs: int
    bytes_each: float | None  # that the tool left, of each sample
    peak_bytes: float | None
    records: float | None
    unit: str
    workers: tuple[int | None, ...]  # how many the outputs told of
    notes: tuple[str, ...]
    changed: int  # runs whose last loss was another than under nothing


def spread(values: Sequence[float]) -> Spread:
    """Return the spread of at least one value."""
    ordered = sorted(values)
    middle = statistics.median(ordered)
    deviation = statistics.median(abs(value - middle) for value in ordered)
    place = outermost(len(ordered))
    return Spread(middle, ordered[place], ordered[-1 - place], deviation, len(ordered))


def outermost(count: int, wanted: float = 0.95) -> int:
    """Return how many values may be left out at each end for the interval to hold the median.

    The chance that fewer than k of n values lie below the median is binomial with one half (sign
    test; Conover, Practical Nonparametric Statistics, 3.2).
    """
    place, outside = 0, 0.0
    while place < (count - 1) // 2:
        outside += 2 * math.comb(count, place) / 2**count
        following = outside + 2 * math.comb(count, place + 1) / 2**count
        if following > 1 - wanted:
            break
        place += 1
    return place


def cells(rows: Sequence[Any]) -> list[Cell]:
    """Summarise the lines of overhead.csv by workload and tool, in order of appearance."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        groups.setdefault((row.workload, row.tool), []).append(row)
    bases = {(row.round, row.workload): row for row in rows if row.tool == BASE and not row.failed}
    return [cell(key, group, bases) for key, group in groups.items()]


def cell(key: tuple[str, str], group: Sequence[Any], bases: Mapping[tuple[int, str], Any]) -> Cell:
    good = [row for row in group if not row.failed]
    failed: dict[str, int] = {}
    for row in group:
        if row.failed:
            failed[row.failed] = failed.get(row.failed, 0) + 1
    ratios = {}
    pairs = [(row, bases[row.round, row.workload]) for row in good
             if (row.round, row.workload) in bases]  # fmt: skip
    for measure in MEASURES:
        differences = [
            getattr(row, measure) / getattr(base, measure) - 1
            for row, base in pairs
            if getattr(row, measure)
            and getattr(base, measure)
            # The first round's times are disturbed, and only it looks at the memory.
            and (measure == "peak_bytes" or row.round > 0)
        ]
        if differences:
            ratios[measure] = differences
    return Cell(
        *key,
        ratios,
        {measure: spread(found) for measure, found in ratios.items()},
        failed,
        len(group),
        median_of(row.output_bytes / row.samples for row in good if row.samples),
        median_of(row.peak_bytes for row in good if row.peak_bytes),
        median_of(row.records for row in good if row.records is not None),
        good[0].unit if good else "",
        tuple(dict.fromkeys(row.workers for row in good)),
        tuple(dict.fromkeys(row.note for row in good if row.note)),
        sum(row.loss != base.loss for row, base in pairs),
    )


def median_of(values: Any) -> float | None:
    listed = list(values)
    return float(statistics.median(listed)) if listed else None


def percent(value: Spread | None, interval: bool = True) -> str:
    """Format a cost with its interval in brackets; with ~ if it does not differ from 0."""
    if value is None:
        return "-"
    text = f"{'' if value.resolved else '~'}{signed(value.median)} %"
    if interval and value.count > 1:
        text += f" ({signed(value.low)} to {signed(value.high)})"
    return text


def signed(share: float) -> str:
    return f"{share * 100:+.{0 if abs(share) >= 0.995 else 1}f}"


def pooled(cells: Sequence[Cell], measure: str) -> Spread | None:
    """Return the spread of all pairs of several workloads together."""
    ratios = [ratio for cell in cells for ratio in cell.ratios.get(measure, ())]
    return spread(ratios) if ratios else None


def size(count: float | None) -> str:
    if count is None:
        return "-"
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"


def remarks(cell: Cell, workers: int) -> str:
    """Return how many workers the tool's output shows."""
    if cell.tool in (BASE, NOISE):
        return ""
    return ", ".join("?" if seen is None else f"{seen} of {workers}" for seen in cell.workers)


def head(facts: Mapping[str, Any], rows: Sequence[Any]) -> list[str]:
    """Return the lines on what was measured, where, when and how."""
    machine = facts["machine"]
    rounds = len({row.round for row in rows if row.round > 0})
    memory = f", {machine['memory_bytes'] / 2**30:.0f} GiB" if machine.get("memory_bytes") else ""
    lines = [
        f"{machine['cpu']}, {machine['cpus']} CPUs{memory}, kernel {machine['kernel']}; Python "
        f"{facts['python']}, torch {facts['torch']}",
        commits_and_days(rows),
        f"{rounds} interleaved rounds in random order; {facts['workers']} workers, one thread for "
        "the model, page cache warm",
    ]
    if facts["quick"]:
        lines.append("QUICK: each once and small, the memory looked at meanwhile: no measurement")
    return lines


def text(conditions: Mapping[str, Any], rows: Sequence[Any], cells: Sequence[Cell]) -> str:
    """Return the whole table for a terminal."""
    lines = head(conditions, rows)
    lines += [
        "Cost against the run under nothing next to it: median of the pairs' ratios, in brackets",
        "what holds the true median with 95 % (7 pairs: least to greatest). ~ is not told from 0.",
        "wall: the whole process. loop: what the script prints of its epochs. CPU: all processes.",
        "peak: proportional set sizes of all processes, once. bytes: that the tool left, a sample.",
    ]
    by = {(cell.workload, cell.tool): cell for cell in cells}
    workloads = [
        name for name in conditions["sizes"] if any(cell.workload == name for cell in cells)
    ]
    columns = ("wall", "loop", "CPU", *(["instructions"] if conditions["instructions"] else []))
    for name in workloads:
        base = [row for row in rows if (row.workload, row.tool) == (name, BASE) and row.round > 0]
        wall, loop = (median_of(getattr(row, m) for row in base if getattr(row, m)) or 0.0
                      for m in ("wall_s", "loop_s"))  # fmt: skip
        lines += [
            "",
            f"{name}: {conditions['sizes'][name]} samples; under nothing {wall:.2f} s, "
            f"of which the loop {loop:.2f} s",
            f"  {'':17}"
            + "".join(f"{column:>29}" for column in columns)
            + f"{'peak':>9}{'bytes':>9}  workers told of",
        ]
        for tool in conditions["tools"]:
            entry = by.get((name, tool))
            if entry is None:
                continue
            if not entry.spreads and tool != BASE:
                lines.append(f"  {tool:17}  FAILED: {'; '.join(entry.failed)}")
                continue
            measures = ("wall_s", "loop_s", "cpu_s", "instructions")[: len(columns)]
            costs = " " * 29 * len(columns)
            if tool != BASE:
                costs = "".join(f"{percent(entry.spreads.get(m)):>29}" for m in measures)
            files_size = "" if tool in (BASE, NOISE) else size(entry.bytes_each)
            lines.append(
                f"  {tool:17}{costs}{size(entry.peak_bytes):>9}{files_size:>9}  "
                f"{remarks(entry, conditions['workers'])}".rstrip()
            )
            lines += [f"    failed {n} of {entry.runs}: {why}" for why, n in entry.failed.items()]
            if entry.changed:
                lines.append(f"    another loss than under nothing in {entry.changed} runs")
    lines += [
        "",
        "all workloads, their pairs together",
        f"  {'':17}" + "".join(f"{column:>29}" for column in columns),
    ]
    for tool in conditions["tools"]:
        found_all = [by[name, tool] for name in workloads if (name, tool) in by]
        if tool != BASE and any(cell.ratios for cell in found_all):
            costs = "".join(
                f"{percent(pooled(found_all, measure)):>29}"
                for measure in ("wall_s", "loop_s", "cpu_s", "instructions")[: len(columns)]
            )
            lines.append(f"  {tool:17}{costs}")
    lines += ["", "What the outputs told (first workload)"]
    for tool in conditions["tools"]:
        entry = by.get((workloads[0], tool)) if workloads else None
        if entry and entry.unit:
            notes = "; ".join(entry.notes[:1])
            lines.append(f"  {tool:17}{entry.records:,.0f} {entry.unit}; {notes}".rstrip("; "))
    lines += ["", "Run as"]
    lines += [f"  {name:17}{about}" for name, about in answers.runs(conditions["tools"])]
    if conditions["not_run"]:
        lines += ["", "Not run"]
        lines += [f"  {name:17}{why}" for name, why in conditions["not_run"].items()]
    return "\n".join([*lines, "", *answers.text(conditions), ""])


def markdown(conditions: Mapping[str, Any], rows: Sequence[Any], cells: Sequence[Cell]) -> str:
    """Write the table behind the one in docs/overhead.md: a line per tool, over all workloads."""
    names = [name for name in conditions["sizes"] if any(cell.workload == name for cell in cells)]
    by = {(cell.workload, cell.tool): cell for cell in cells}
    title = " | ".join(name.replace("_", " ") for name in names)
    lines = [
        f"| under | {title} | all | CPU | memory | bytes a sample | answers |",
        "|---|" + "---:|" * (len(names) + 4) + "---|",
    ]
    for tool, version in conditions["tools"].items():
        if tool == BASE:
            continue
        entries = [by[name, tool] for name in names if (name, tool) in by]
        costs = [
            percent(by[name, tool].spreads.get("wall_s"), False)
            if (name, tool) in by and by[name, tool].spreads
            else "failed"
            for name in names
        ]
        medians = {
            measure: [cell.spreads[measure].median for cell in entries if measure in cell.spreads]
            for measure in MEASURES
        }
        cpu, memory = (
            f"{statistics.median(medians[m]) * 100:+.0f} %" if medians[m] else "-"
            for m in ("cpu_s", "peak_bytes")
        )
        sizes = [cell.bytes_each for cell in entries if cell.bytes_each is not None]
        lasting = "" if tool == NOISE else (size(min(sizes)) if sizes else "-")
        if sizes and tool != NOISE and size(max(sizes)) != size(min(sizes)):
            lasting += f" to {size(max(sizes))}"
        shown = tool if tool == NOISE or tool.startswith("lotus") else f"{tool} {version}"
        costs.append(percent(pooled(entries, "wall_s")))
        answered = answers.short(tool, conditions)
        lines.append(
            f"| {shown} | {' | '.join(costs)} | {cpu} | {memory} | {lasting} | {answered} |"
        )
    for name, why in conditions["not_run"].items():
        lines.append(f"| {name} |{' |' * (len(names) + 1)} | | | not run: {why} |")
    lines += [
        "",
        "Wall time of the whole process: median of the pairs, `~` where it is not told from "
        "nothing (all: the pairs of all workloads together, with the interval of 95 %). CPU and "
        "memory: the median over the workloads. "
        + " ".join(f"{line}." for line in head(conditions, rows)),
        "",
        "The loop's own time, as the scripts print it:",
        "",
        f"| under | {title} | all |",
        "|---|" + "---:|" * (len(names) + 1),
    ]
    for tool in conditions["tools"]:
        if tool != BASE:
            costs = [
                percent(by[name, tool].spreads.get("loop_s"), False) if (name, tool) in by else "-"
                for name in names
            ]
            entries = [by[name, tool] for name in names if (name, tool) in by]
            costs.append(percent(pooled(entries, "loop_s")))
            lines.append(f"| {tool} | {' | '.join(costs)} |")
    lines += ["", *answers.markdown(conditions)]
    return "\n".join(lines) + "\n"
