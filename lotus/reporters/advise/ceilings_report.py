"""`lotus advise --ceilings` on a terminal and as a document: its progress and its result."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from lotus.advise.ceilings.ceilings import ALL, EXACT, FREE, MOST, REAL, SAME, STALLS, UNSENT
from lotus.common.storage import files
from lotus.common.terminal.stderr import say
from lotus.common.text.formatting import (
    MISSING,
    amount,
    duration,
    factor_between,
    plain,
    plural,
    share,
)
from lotus.reporters.advise import alternatives_report
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table
from lotus.reporters.base.status_line import StatusLine

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from lotus.advise.alternatives.tried_alternatives import Alternatives
    from lotus.advise.ceilings.ceiling_blocks import BlockProgress
    from lotus.advise.ceilings.ceilings import Ceilings, Share
    from lotus.tune.search.trials.trial_rates import Speedup

SCHEMA = 1
_LABELS = {"interference": "slowed step"}  # of stalls, where another is short enough for a column
KINDS = {
    REAL: "the loader as it is",
    SAME: "the same samples again",
    UNSENT: "made, and not sent",
    FREE: "data always ready",
    EXACT: "alternatives, same values",
    ALL: "all alternatives",
}


def document(
    result: Ceilings, *, others: Alternatives | None = None, output: Path | None = None
) -> dict[str, Any]:
    """Return the result as a JSON document, with other ways if they were tried; null: not known.

    `output` is the file of settings, if one was written.
    """
    watched = result.watched
    data = {
        "schema": SCHEMA,
        "loader": {"title": watched.title(), **dataclasses.asdict(watched.loader)},
        "setting": watched.setting.as_json(),
        "sentence": result.sentence(),
        "ceiling": _speedup(result.speedup),
        "storage_ceiling": _speedup(result.storage_speedup),
        "alternative_speedups": {
            kind: _speedup(result.over(kind)) for kind in (EXACT, ALL) if kind in result.rates()
        },
        "shares": [dataclasses.asdict(item) for item in result.shares()],
        "samples_per_s": {kind: result.rates().get(kind) for kind in KINDS},
        "rounds": [
            [dataclasses.asdict(block) for block in item.values()] for item in result.rounds
        ],
        "seconds": result.seconds,
        "budget_s": result.budget_s,
        "stopped": result.stopped,
        "interrupted": result.interrupted,
        "notes": result.notes_on(),
    }
    if others is not None:
        data["alternatives"] = alternatives_report.document(others)
        data["output"] = None if output is None else str(output)
    json_result: dict[str, Any] = files.json_value(data)
    return json_result


def _speedup(speedup: Speedup | None) -> dict[str, Any] | None:
    if speedup is None:
        return None
    return {"mean": speedup.mean, "low": speedup.low, "high": speedup.high, "pairs": speedup.pairs}


class CeilingProgress:
    """Reports on stderr: a bar on a terminal, else a line for each round."""

    def __init__(self, terminal: bool) -> None:
        self._terminal, self._line = terminal, StatusLine()
        self._rounds = 0

    def __call__(self, progress: BlockProgress) -> None:
        used = f"{progress.spent_s:.0f} of {progress.budget_s:g} s"
        so_far = "" if progress.speedup is None else f", {_mean(progress.speedup)} times so far"
        if self._terminal:
            text = f"{used}: {KINDS[progress.kind]}{so_far}"
            part = progress.spent_s / progress.budget_s
            self._line.show(alternatives_report.progress_bar(part, text))
        elif progress.rounds > self._rounds:
            self._rounds = progress.rounds
            say(f"lotus: {used}: {plural(progress.rounds, 'round')} of blocks{so_far}")

    def clear(self) -> None:
        """Clear the bar."""
        self._line.clear()


def write(console: Console, result: Ceilings) -> None:
    """Print the shares of the stalls and the rates; the conclusion comes last."""
    console.print(f"\nCeilings: {plain(result.watched.title())}", style="bold")
    rates = result.rates()
    rows = [
        [
            KINDS[kind],
            amount(rates[kind]) if kind in rates else MISSING,
            _times(result.over(kind)) if kind != REAL else "",
        ]
        for kind in KINDS
        if kind in rates
    ]
    columns = [("", LEFT), ("samples/s", RIGHT), ("times as fast (95 %)", RIGHT)]
    blocks = sum(len(stall) for stall in result.rounds)
    title = (
        f"{plural(blocks, 'block')} in {plural(len(result.rounds), 'round')}, "
        f"{duration(result.seconds * 1e9)} of {duration(result.budget_s * 1e9)}"
    )
    print_table(console, title, columns, rows)
    if result.stopped:
        print_paragraph(console, "", f"They ended early: {result.stopped}.")
    shares = result.shares()
    if shares:
        cells = [[_label(stall), share(stall.mean), _between(stall)] for stall in shares]
        columns = [("stall", LEFT), ("share", RIGHT), ("95 %", RIGHT)]
        print_table(console, "Where the loop's time goes", columns, cells)
        console.print()
        for stall in shares:
            print_paragraph(console, _label(stall), STALLS[stall.stall])
    for note in result.notes_on():
        print_paragraph(console, "note", plain(note))
    console.print(f"\n{plain(result.sentence())}.", style="bold")


def _mean(speedup: Speedup) -> str:
    return f"{speedup.mean:.2f}" if speedup.mean <= MOST else f"more than {MOST:.0f}"


def _label(stall: Share) -> str:
    return _LABELS.get(stall.stall, stall.stall)


def _times(speedup: Speedup | None) -> str:
    if speedup is None:
        return MISSING
    if speedup.low > MOST:
        return f"more than {MOST:.0f}"
    if speedup.tells_nothing:
        return "cannot be told"
    return factor_between(speedup.mean, speedup.low, speedup.high)


def _between(stall: Share) -> str:
    return f"{share(stall.low)} to {share(stall.high)}"
