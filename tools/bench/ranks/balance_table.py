"""The statistics and tables of balance_measured.py: rows in, text out.

Strategies are compared within a round. As `bno` does not keep the global batch, samples per second
are compared; milliseconds per update stand beside them. Spreads are the minimum and maximum of the
rounds, which are few.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.bench.measurements import commits_and_days

ORACLE = "oracle"
STRATEGIES = ("equal", "random", "bno", "lotus", ORACLE)
NEAR = 0.05  # of the oracle: the aim


@dataclass
class Row:
    """One run of the training script under `lotus run`: a line of balance_measured.csv."""

    round: int
    cell: str
    strategy: str
    sizes: str = ""  # of the ranks' batches, as 40/24
    failed: str = ""
    updates: int | None = None
    update_ms: float | None = None  # mean
    median_ms: float | None = None
    deviation_ms: float | None = None
    per_100_ms: str = ""  # mean of each 100 updates
    samples_per_s: float | None = None
    predicted_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    commit: str = ""
    at: str = ""


@dataclass(frozen=True)
class Spread:
    """The middle, the least and the greatest of some values."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: Iterable[float]) -> "Spread | None":
        ordered = sorted(values)
        return Spread(statistics.median(ordered), ordered[0], ordered[-1]) if ordered else None


@dataclass(frozen=True)
class Line:
    """The results of one strategy in one cell."""

    cell: str
    strategy: str
    sizes: tuple[str, ...]
    update_ms: Spread
    samples_per_s: Spread
    of_oracle: Spread | None  # samples per second by those of the oracle in the same round
    of_equal: Spread | None
    predicted_ms: Spread | None
    error: Spread | None  # of the prediction: predicted by measured, less one
    held: int  # runs whose mean update the predicted interval held
    runs: int
    failed: tuple[str, ...]


def lines(rows: Sequence[Row], cell: str) -> list[Line]:
    """Sum up a cell's rows by strategy."""
    mine = [row for row in rows if row.cell == cell]
    rates = {
        (row.round, row.strategy): row.samples_per_s
        for row in mine
        if not row.failed and row.samples_per_s
    }
    table = []
    for strategy in STRATEGIES:
        every = [row for row in mine if row.strategy == strategy]
        good = [row for row in every if not row.failed]
        update = Spread.of(row.update_ms for row in good if row.update_ms)
        rate = Spread.of(row.samples_per_s for row in good if row.samples_per_s)
        if update is None or rate is None:
            continue

        def against(other: str, good: list[Row] = good) -> Spread | None:
            pairs = [(row.samples_per_s, rates.get((row.round, other))) for row in good]
            return Spread.of(mine / theirs for mine, theirs in pairs if mine and theirs)

        predicted = [row for row in good if row.predicted_ms and row.update_ms]
        table.append(
            Line(
                cell,
                strategy,
                tuple(dict.fromkeys(row.sizes for row in good)),
                update,
                rate,
                against(ORACLE),
                against("equal"),
                Spread.of(row.predicted_ms for row in predicted if row.predicted_ms),
                Spread.of((row.predicted_ms or 0) / (row.update_ms or 1) - 1 for row in predicted),
                sum(
                    (row.low_ms or 0) <= (row.update_ms or 0) <= (row.high_ms or 0)
                    for row in predicted
                ),
                len(good),
                tuple(row.failed for row in every if row.failed),
            )
        )
    return table


def scaled(sizes: Sequence[int], total: int) -> tuple[int, ...]:
    """Return shares in the same proportion of another global batch, one sample at least."""
    whole = sum(sizes)
    scaled_sizes = [max(1, size * total // whole) for size in sizes]
    while sum(scaled_sizes) != total:
        step = 1 if sum(scaled_sizes) < total else -1
        gaps = [size * total / whole - has for size, has in zip(sizes, scaled_sizes, strict=True)]
        fit = [rank for rank, has in enumerate(scaled_sizes) if has + step >= 1]
        scaled_sizes[max(fit, key=lambda rank: (step * gaps[rank], -rank))] += step
    return tuple(scaled_sizes)


def verdict(table: Sequence[Line]) -> str:
    """Return which strategy was first in a cell, and how near lotus came to the oracle."""
    by = {line.strategy: line for line in table}
    paper = [line for line in table if line.strategy != ORACLE]
    lotus = by.get("lotus")
    if lotus is None or len(paper) < 2:
        return ""
    ranked = sorted(paper, key=lambda line: -line.samples_per_s.median)
    first = ranked[0]
    if first is lotus:
        text = f"lotus first, {ranked[1].strategy} next"
    else:
        behind = 1 - lotus.samples_per_s.median / first.samples_per_s.median
        text = f"{first.strategy} first, lotus {behind:.1%} behind"
    if lotus.of_oracle is not None:
        text += f"; lotus {nearness(lotus.of_oracle)} ({percents(lotus.of_oracle)})"
        if lotus.sizes == by[ORACLE].sizes:
            text += ", whose split is the same: that is what runs of one split vary by"
    return text


def nearness(of_oracle: Spread) -> str:
    """Return a clause that says if this is within 5 % of the oracle, and in how many rounds."""
    if of_oracle.low >= 1 - NEAR:
        return f"within {NEAR:.0%} of the oracle in every round"
    if of_oracle.high < 1 - NEAR:
        return f"NOT within {NEAR:.0%} of the oracle in any round"
    return f"within {NEAR:.0%} of the oracle in some rounds only"


def percents(value: Spread | None) -> str:
    if value is None:
        return "-"
    return f"{value.median:.1%} ({value.low * 100:.1f} to {value.high * 100:.1f})"


def signed(value: Spread | None) -> str:
    if value is None:
        return "-"
    return f"{value.median:+.0%} ({value.low * 100:+.0f} to {value.high * 100:+.0f})"


def number(value: Spread | None) -> str:
    if value is None:
        return "-"
    digits = 0 if value.median >= 200 else 1
    return f"{value.median:.{digits}f} ({value.low:.{digits}f} to {value.high:.{digits}f})"


def several(sizes: Sequence[str]) -> str:
    return sizes[0] if len(sizes) == 1 else f"{', '.join(sizes)}"


def head(conditions: Mapping[str, Any], rows: Sequence[Row]) -> list[str]:
    """Return the lines that say what was measured, where, when and how."""
    counts = {
        name: len({row.round for row in rows if row.cell == name}) for name in conditions["cells"]
    }
    counts_made = sorted({count for count in counts.values() if count} or {0})
    rounds = (
        f"{counts_made[0]}" if len(counts_made) == 1 else f"{counts_made[0]} to {counts_made[-1]}"
    )
    rounds_text = f"{rounds} interleaved rounds of each cell, in random order"
    return heading(conditions, rows, rounds_text, "a cell or so, few updates")


def heading(
    conditions: Mapping[str, Any], rows: Sequence[Any], rounds_text: str, quick: str
) -> list[str]:
    """The lines above the tables of rows, of any kind; `quick`: what was measured if little was."""
    facts = conditions["facts"]
    parts = [
        f"{facts['cpu']}, {facts['cpus']} CPUs, kernel {facts['kernel']}; Python "
        f"{facts['python']}, torch {facts['torch']}, gloo",
        commits_and_days(rows),
        rounds_text,
    ]
    if conditions.get("note"):
        parts.append(conditions["note"])
    if facts.get("quick"):
        parts.append(f"QUICK: {quick}: no measurement")
    return parts


def text(conditions: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """Return the whole table for a terminal."""
    output = head(conditions, rows)
    output += [
        "Each run: lotus run --settings PLAN -- torchrun ... script. Update: mean time from the",
        "end of one weight update to that of the next, reading of data and waiting included;",
        "median of the rounds (least to greatest). samples/s: of all ranks; those of the oracle",
        "and of equal are of the same round. bno does not keep the global batch: compare",
        "samples/s. oracle: the best split that a search over real updates found, run as the",
        "others. predicted: by lotus, from two traces with equal batches; error: predicted by",
        "measured; held: how often the measured update was in the predicted 95 % interval.",
    ]
    for name, cell in conditions["cells"].items():
        table = lines(rows, name)
        output += ["", f"{name}: {cell['words']}"]
        if cell.get("skipped"):
            output.append(f"  not run: {cell['skipped']}")
            continue
        output += [
            f"  {cell['batch']} samples a rank as written, {cell['workers']} workers; "
            f"{cell['updates']} updates a run after {cell['warm']}; "
            f"{max((line.runs for line in table), default=0)} rounds",
            f"  {'':8}{'batches':16}{'update, ms':>24}{'samples/s':>24}{'of the oracle':>24}"
            f"{'of equal':>24}{'predicted, ms':>24}{'error':>16} held",
        ]
        for line in table:
            sizes = "varied" if len(line.sizes) > 1 else line.sizes[0]
            covered = f"{line.held}/{line.runs}" if line.predicted_ms else "-"
            output.append(
                f"  {line.strategy:8}{sizes:16}{number(line.update_ms):>24}"
                f"{number(line.samples_per_s):>24}{percents(line.of_oracle):>24}"
                f"{percents(line.of_equal):>24}{number(line.predicted_ms):>24}"
                f"{signed(line.error):>16} {covered:>4}"
            )
            if len(line.sizes) > 1:
                output.append(f"  {'':8}varied: {', '.join(line.sizes)}")
            output += [f"    failed: {why}" for why in line.failed]
        output += [f"  {sentence}" for sentence in (verdict(table), searched(cell)) if sentence]
    return "\n".join([*output, ""])


def searched(cell: Mapping[str, Any]) -> str:
    """Return the results of the search for the oracle: its splits all in one process."""
    scan = cell.get("scan")
    if not scan:
        return ""
    middle = {split: statistics.median(took) * 1e3 for split, took in scan["seconds"].items()}
    best = "/".join(map(str, scan["best"]))
    sentence = f"search: {len(middle)} splits in blocks of {scan['block']} updates; {best} "
    sentence += f"{middle[best]:.1f} ms"
    bno = cell.get("bno_scaled")
    if bno in middle:
        sentence += f"; bno's shares of the same global batch, {bno}, {middle[bno]:.1f} ms"
    return sentence


def markdown(conditions: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """Write the table behind the one in tools/bench/results/gains.md: a line a cell."""
    output = [
        "| cluster, model | " + " | ".join(STRATEGIES) + " | lotus of the oracle | predicted |",
        "|---|" + "---:|" * (len(STRATEGIES) + 2),
    ]
    for name, cell in conditions["cells"].items():
        by = {line.strategy: line for line in lines(rows, name)}
        if cell.get("skipped"):
            output.append(f"| {name} |{' |' * (len(STRATEGIES) + 1)} not run: {cell['skipped']} |")
            continue
        if not by:
            continue
        best = max(line.samples_per_s.median for key, line in by.items() if key != ORACLE)
        cells_shown = []
        for strategy in STRATEGIES:
            line = by.get(strategy)
            if line is None:
                cells_shown.append("failed")
                continue
            rate, update = f"{line.samples_per_s.median:,.0f}", f"{line.update_ms.median:.0f} ms"
            if strategy != ORACLE and line.samples_per_s.median == best:
                rate = f"**{rate}**"
            cells_shown.append(f"{rate} ({update})")
        lotus = by.get("lotus")
        cells_shown.append(percents(lotus.of_oracle) if lotus else "-")
        cells_shown.append(signed(lotus.error) if lotus else "-")
        words = cell["words"].replace(" | ", ", ")
        output.append(f"| {name} ({words}) | {' | '.join(cells_shown)} |")
    output += [
        "",
        "Samples per second of all ranks (mean time of an update); the median of the rounds, in "
        "brackets in the last two columns the least and the greatest; **bold**: the most, without "
        "the oracle. `bno` does not keep the global batch, so its updates are of other sizes. "
        "Predicted: lotus's step against the measured one. "
        + " ".join(f"{line}." for line in head(conditions, rows)),
    ]
    return "\n".join(output) + "\n"
