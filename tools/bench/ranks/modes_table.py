"""The statistics and tables of modes_measured.py: rows in, text out.

Modes are compared within a round, in which seed, pictures, first parameters and order are the same.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.bench.ranks.balance_table import Spread, heading

AS_WRITTEN = "as written"


@dataclass
class Row:
    """One epoch of one run: a line of modes_measured.csv. A run that failed has one, of epoch 0."""

    round: int
    mode: str
    epoch: int  # from 1 on
    failed: str = ""
    seconds: float | None = None  # of training in this epoch
    loss: float | None = None  # on pictures that are not trained on, after it
    right: float | None = None  # share of them that is told rightly
    samples: str = ""  # that each rank took, as 4096/4096/4096
    commit: str = ""
    at: str = ""


@dataclass(frozen=True)
class Line:
    """The results of one mode."""

    mode: str
    epoch_s: Spread  # over rounds: mean of the epochs of one run
    of_written: Spread | None  # that, by the same of the program as it is written
    loss: tuple[Spread, ...]  # after each epoch
    right: Spread  # after the last
    more_loss: Spread | None  # after the last epoch, than as written in the same round
    compared: int  # rounds that have both
    worse: int  # of these, with more loss at the end
    until_s: Spread | None  # training until the loss is as low as that as written at its end
    reached: int  # rounds in which it came to that
    runs: int
    samples: str  # of the last run's last epoch

    @property
    def learns(self) -> str:
        """The loss at equal epochs, compared by rounds; capitals if all agree."""
        if self.mode == AS_WRITTEN or not self.compared:
            return ""
        if self.worse == self.compared > 1:
            return "WORSE in every round"
        if not self.worse and self.compared > 1:
            return "better in every round"
        return f"worse in {self.worse} of {self.compared}"


def runs(rows: Sequence[Row]) -> dict[tuple[int, str], list[Row]]:
    """Return the epochs of each run that did not fail, by round and mode."""
    grouped: dict[tuple[int, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.epoch):
        if not row.failed:
            grouped.setdefault((row.round, row.mode), []).append(row)
    return grouped


def until(run: Sequence[Row], loss: float) -> float | None:
    """Seconds of training after which the loss was this low, between epochs by a straight line."""
    spent, before = 0.0, None
    for row in run:
        seconds, now = row.seconds or 0.0, row.loss or 0.0
        if now <= loss:
            if before is None or before <= now:
                return spent + seconds
            return spent + seconds * (before - loss) / (before - now)
        spent, before = spent + seconds, now
    return None


def lines(rows: Sequence[Row], modes: Sequence[str]) -> list[Line]:
    """Sum up rows by mode, in the order of `modes`."""
    every = runs(rows)
    table = []
    for mode in modes:
        mine = {number: run for (number, name), run in every.items() if name == mode}
        if not mine:
            continue
        base = {number: every[number, AS_WRITTEN] for number in mine
                if (number, AS_WRITTEN) in every}  # fmt: skip
        last = min(len(run) for run in mine.values())
        reached = [until(mine[number], base[number][-1].loss or 0.0) for number in base]
        more = [(mine[n][-1].loss or 0.0) - (base[n][-1].loss or 0.0) for n in base]
        losses = [Spread.of(run[at].loss or 0.0 for run in mine.values()) for at in range(last)]
        table.append(
            Line(
                mode,
                _of(mean_s(run) for run in mine.values()),
                Spread.of(mean_s(mine[number]) / mean_s(base[number]) for number in base),
                tuple(loss for loss in losses if loss is not None),
                _of(run[-1].right or 0.0 for run in mine.values()),
                Spread.of(more),
                len(more),
                sum(excess > 0 for excess in more),
                Spread.of(seconds for seconds in reached if seconds is not None),
                sum(seconds is not None for seconds in reached),
                len(mine),
                list(mine.values())[-1][-1].samples,
            )
        )
    return table


def _of(values: Any) -> Spread:
    spread = Spread.of(values)
    assert spread is not None
    return spread


def mean_s(run: Sequence[Row]) -> float:
    return statistics.fmean(row.seconds or 0.0 for row in run)


def span(spread: Spread | None, digits: int = 2, times: float = 1.0, sign: str = "") -> str:
    if spread is None:
        return "-"
    low, high, middle = (
        f"{part * times:{sign}.{digits}f}" for part in (spread.low, spread.high, spread.median)
    )
    return f"{middle} ({low} to {high})"


def head(conditions: Mapping[str, Any], rows: Sequence[Row]) -> list[str]:
    facts, cell = conditions["facts"], conditions["cell"]
    rounds_text = (
        f"{len({row.round for row in rows})} interleaved rounds, each with another seed; ranks "
        f"with {cell['words'].replace(' | ', ', ')}; {cell['model']}, {cell['batch']} samples a "
        f"rank as written, {facts['pictures']} pictures, {facts['epochs']} epochs"
    )
    return heading(conditions, rows, rounds_text, "one round, few pictures")


def text(conditions: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """Return the whole table for a terminal."""
    table = lines(rows, list(conditions["modes"]))
    epochs = max((len(line.loss) for line in table), default=0)
    output = head(conditions, rows)
    output += [
        "Epoch: seconds of training, without the evaluation; median of the rounds (least to",
        "greatest). Loss: on 2000 pictures that are not trained on. More loss: at the end, than as",
        "written in the same round. Until: seconds of training to the loss that the program has as",
        "written at its end. As written and sync with shares train on the same global batches, so",
        "between them only crops and flips differ, which are drawn by rank: what their losses are",
        "apart is chance. All others learn otherwise; their speed is worth what the loss says.",
        "",
        f"  {'':14}{'epoch, s':>22}{'of as written':>22}{'loss at the end':>25}"
        f"{'right at the end, %':>25}{'more loss':>28}{'until, s':>27}  learns",
    ]
    for line in table:
        reached = "" if line.reached == line.runs else f" in {line.reached} of {line.runs}"
        output.append(
            f"  {line.mode:14}{span(line.epoch_s):>22}{span(line.of_written):>22}"
            f"{span(line.loss[-1], 3):>25}{span(line.right, 1, 100):>25}"
            f"{span(line.more_loss, 3, sign='+'):>28}{span(line.until_s, 1) + reached:>27}  "
            f"{line.learns}".rstrip()
        )
    output += ["", "  loss after each epoch"]
    output += [
        f"  {line.mode:14}" + "".join(f"{span(loss, 3):>25}" for loss in line.loss)
        for line in table
    ]
    output += ["", f"  samples of each rank in the last of {epochs} epochs"]
    output += [f"  {line.mode:14}{line.samples}" for line in table]
    output += ["", "  run as"]
    output += [f"  {name:14}{how}" for name, how in conditions["modes"].items()]
    output += ["", *(f"  {sentence}" for sentence in foretold(conditions, table))]
    failed = [row for row in rows if row.failed]
    output += [f"  failed: {row.mode}, round {row.round + 1}: {row.failed}" for row in failed]
    return "\n".join([*output, ""])


def foretold(conditions: Mapping[str, Any], table: Sequence[Line]) -> list[str]:
    """Return the predictions of `lotus balance` for the modes, beside the measured times."""
    advice = conditions.get("told")
    if not advice:
        return ["lotus balance says nothing of modes here"]
    by = {line.mode: line.epoch_s.median for line in table}
    output = [
        f"lotus balance recommends {advice['recommended']}"
        + (f", as an option that learns otherwise {advice['option']}" if advice["option"] else "")
        + "; predicted seconds of an epoch, by measured:"
    ]
    for name, (seconds, low, high) in advice["epoch_s"].items():
        bounds = f" ({low:.2f} to {high:.2f})" if low is not None and high is not None else ""
        measured_text = f"{by[name]:.2f}, {seconds / by[name] - 1:+.0%}" if name in by else "-"
        output.append(f"  {name:14}{seconds:.2f}{bounds}; measured {measured_text}")
    return output


def markdown(conditions: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """Write the table behind the one in tools/bench/results/gains.md."""
    output = [
        "| mode | seconds an epoch | of as written | loss at the end | more loss | right | learns "
        "|",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for line in lines(rows, list(conditions["modes"])):
        output.append(
            f"| {line.mode} | {span(line.epoch_s)} | {span(line.of_written)} | "
            f"{span(line.loss[-1], 3)} | {span(line.more_loss, 3, sign='+')} | "
            f"{line.right.median:.1%} | {line.learns} |"
        )
    output += [
        "",
        "Median of the rounds (least to greatest); loss and share of right answers on pictures "
        "that were not trained on, after as many epochs for all modes. "
        + " ".join(f"{line}." for line in head(conditions, rows)),
    ]
    return "\n".join(output) + "\n"
