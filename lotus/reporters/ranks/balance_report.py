"""`lotus balance` on a terminal and as a document."""

import dataclasses
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotus.balance.mode_prediction import WAITS, Modes, PredictedMode
from lotus.balance.more_workers import MoreWorkers
from lotus.balance.split import BatchSplit, RankShare
from lotus.balance.step_prediction import Predicted
from lotus.common.text.formatting import MISSING, amount, plain, plural, seconds, share
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table
from lotus.settings import share_plan

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

SCHEMA = 1
_MOST_ROWS = 16  # of ranks; those whose batch changes most are shown
_MOST_GROUPS = 60  # characters of a list of groups


def document(balance: BatchSplit) -> dict[str, Any]:
    """Return the plan as in balance.json, and its basis; times in seconds, null: unknown."""
    return {
        "schema": SCHEMA,
        "title": balance.job.title,
        "plan": share_plan.document(balance.plan()),
        "ranks": [dataclasses.asdict(rank) for rank in balance.shares],
        "tuned": [dataclasses.asdict(rank) for rank in balance.tuned],
        "step_after_tuned_s": dataclasses.asdict(balance.after_tuned)
        if balance.after_tuned
        else None,
        "quantities": dict(balance.quantities),
        "weights": [dict(weights) for weights in balance.weights],
        "modes": None if balance.modes is None else _modes_document(balance.modes),
    }


def _modes_document(modes: Modes) -> dict[str, Any]:
    return {
        "batches": modes.batches,
        "every": modes.every,
        "staleness": modes.staleness,
        "rows": [
            {
                "mode": mode.name,
                "epoch_s": dataclasses.asdict(mode.epoch),
                "times": mode.times,
                "learns_the_same": mode.learns_the_same,
                "groups": [list(group) for group in mode.groups],
            }
            for mode in modes.rows
        ],
        "waiting_share": modes.waiting,
        "persistent_share": modes.persistent,
        "recommended": modes.recommended,
        "option": modes.option,
        "option_saves_share": modes.gain,
        "notes": list(modes.notes),
    }


def write(
    console: "Console", balance: BatchSplit, *, run: Path, written: Path | None = None
) -> None:
    """Print the shares. `run`: the run directory as given; `written`: the path of the plan."""
    rows = _shown(balance.shares)
    several = len({rank.host for rank in balance.shares}) > 1
    columns = [("rank", RIGHT), ("host", LEFT), ("batch", RIGHT), ("then", RIGHT)]
    columns += [("step", RIGHT), ("input", RIGHT), ("limit", LEFT), ("takes then", RIGHT)]
    cells = [
        [
            str(row.rank),
            plain(row.host) or MISSING,
            amount(row.before),
            amount(row.after),
            seconds(row.step_before_s),
            seconds(row.input_before_s),
            "input" if row.input_binds else "step",
            seconds(row.own_after_s),
        ]
        for row in rows
    ]
    if not several:
        columns, cells = columns[:1] + columns[2:], [row[:1] + row[2:] for row in cells]
    print_table(console, f"Balance: {plain(balance.job.title)}", columns, cells)
    if len(rows) < len(balance.shares):
        console.print(
            f"  {len(balance.shares) - len(rows):,} more ranks, whose batches change less; "
            "--json lists all",
            style="dim",
        )
    _weights(console, balance, rows)
    console.print()
    for tuned in balance.tuned:
        print_paragraph(
            console, "first", f"rank {tuned.rank}'s input is its limit: {_input(tuned)}"
        )
    if balance.after_tuned is not None:
        words = f"tuned so and balanced after that: {_interval(balance.after_tuned)} a step"
        print_paragraph(console, "tuned", words)
    measured = balance.job.measured_ns / 1e9
    now = f"{_interval(balance.before)} a step"
    if not math.isnan(measured):
        now += f"; measured {seconds(measured)}"
    sizes = f", a global batch of {amount(balance.job.global_batch)}"
    print_paragraph(console, "now", now + sizes)
    total = sum(balance.batch_sizes)
    then = f"{_interval(balance.after)} a step, predicted; {_times(balance.times)}"
    keeps_batch = total == balance.job.global_batch
    then += f", the global batch {'kept' if keeps_batch else f'becomes {amount(total)}'}"
    print_paragraph(console, "then", then)
    for note in balance.notes:
        print_paragraph(console, "note", plain(note))
    _modes(console, balance)
    if balance.question.strategy == "lotus" and not balance.pays:
        return  # nothing above is a reason to use it
    if written is None:
        words = f"keep it: lotus balance {shlex.quote(str(run))} -o {share_plan.DEFAULT}"
    else:
        words = f"lotus run --settings {shlex.quote(str(written))} -- torchrun ..."
    # Users copy commands, so they are not wrapped.
    console.print(f"  {'next':11} {plain(words)}", soft_wrap=True)


def _shown(rows: Sequence[RankShare]) -> list[RankShare]:
    if len(rows) <= _MOST_ROWS:
        return list(rows)
    most = sorted(rows, key=lambda share: (-abs(share.after - share.before), share.rank))[
        :_MOST_ROWS
    ]
    return sorted(most, key=lambda share: share.rank)


def _weights(console: Any, balance: BatchSplit, rows: Sequence[RankShare]) -> None:
    """Print the inputs of BalanceNet Orchestrator's formula."""
    if not balance.weights:
        return
    names = ("K", "MW", "NCW")
    columns = [("rank", RIGHT), *((name, RIGHT) for name in names)]
    cells = [
        [str(row.rank), *(f"{balance.weights[row.rank][name]:.3f}" for name in names)]
        for row in rows
    ]
    print_table(console, "BalanceNet Orchestrator, equations 1 to 5", columns, cells)
    console.print()
    for name, basis in balance.quantities.items():
        print_paragraph(console, name, plain(basis))


def _modes(console: Any, balance: BatchSplit) -> None:
    """Print the time of an epoch in each mode of training, and the recommended modes."""
    modes = balance.modes
    if modes is None:
        words = "not predicted: the synchronisation of gradients was not traced"
        print_paragraph(console, "modes", words)
        return
    columns = [("mode", LEFT), ("an epoch", RIGHT), ("95 %", LEFT), ("of now", RIGHT)]
    columns.append(("learns", LEFT))
    cells = [
        [
            _named(mode, balance),
            seconds(mode.epoch.seconds),
            MISSING
            if math.isnan(mode.epoch.low)
            else f"{seconds(mode.epoch.low)} to {seconds(mode.epoch.high)}",
            share(mode.times),
            "as now" if mode.learns_the_same else "otherwise",
        ]
        for mode in modes.rows
    ]
    title = f"Modes: predicted for an epoch of {plural(modes.batches, 'batch')} a rank"
    print_table(console, title, columns, cells)
    console.print()
    print_paragraph(console, "waits", _waits(modes))
    print_paragraph(console, "mode", _recommended(modes, balance))
    for mode in modes.rows:
        if mode.groups:
            print_paragraph(console, mode.name, f"is shown for {_groups(mode.groups)}")
    for note in modes.notes:
        print_paragraph(console, "note", note)


def _named(mode: PredictedMode, balance: BatchSplit) -> str:
    if mode.name == "split":
        return f"sync, split by {balance.question.strategy}"
    return f"{mode.name} (experimental)" if mode.name == "async" else mode.name


def _waits(modes: Modes) -> str:
    text = f"ranks wait for each other {share(modes.waiting)} of the time"
    if modes.waiting < WAITS or math.isnan(modes.persistent):
        return text
    text += (
        f": {share(modes.persistent)} of that for ranks that are always slow, "
        f"{share(1 - modes.persistent)} for single slow steps"
    )
    if modes.persistent < 0.5:
        text += ", which no split removes; averaging less often (local, or async, which is "
        text += "experimental) does"
    return text


def _recommended(modes: Modes, balance: BatchSplit) -> str:
    best = modes.of(modes.recommended)
    if best.name == "split":
        text = f"{_named(best, balance)}: {share(1 - best.times)} less time than now, learns as now"
    else:
        text = "sync, as it is"
    if any(rank.why or rank.times > 1.0 for rank in balance.tuned):
        text = f"tune the input first, as said above, and trace again. Until then {text}"
    if modes.option is None:
        return f"{text}; no mode that learns otherwise is clearly faster"
    option = modes.of(modes.option)
    text += (
        f". {_named(option, balance)} would take {share(modes.gain)} less than that by its times"
    )
    if modes.option == "async":
        text += ", if averaging in the background costs the steps nothing"
    return f"{text}, but it learns otherwise: compare the loss (lotus run --mode {modes.option})"


def _groups(groups: Sequence[Sequence[int]]) -> str:
    text = "/".join(",".join(map(str, group)) for group in groups)
    if len(text) > _MOST_GROUPS:
        return f"{len(groups)} groups, which --json lists"
    return f"--groups {text}"


def _input(tuned: MoreWorkers) -> str:
    if tuned.why:
        return f"let lotus tune find what it can be ({plain(tuned.why)})"
    now = f"{amount(tuned.now)} samples/s with {_workers(tuned.workers_now)}"
    if tuned.workers == tuned.workers_now:
        return f"{now}, and no other number of workers gives it more (simulated)"
    return (
        f"{now}, about {amount(tuned.then)} with {_workers(tuned.workers)} (simulated); let "
        "lotus tune measure that, then trace and balance again"
    )


def _workers(count: int) -> str:
    return {0: "no workers", 1: "1 worker"}.get(count, f"{count} workers")


def _interval(predicted: Predicted) -> str:
    if math.isnan(predicted.low):
        return f"{seconds(predicted.seconds)} (too few steps for an interval)"
    low, high = seconds(predicted.low), seconds(predicted.high)
    return f"{seconds(predicted.seconds)} (95 %: {low} to {high})"


def _times(times: float) -> str:
    if math.isnan(times) or abs(times - 1) < 0.005:
        return "as many samples a second as now"
    return f"{times:.2f} times as many samples a second"
