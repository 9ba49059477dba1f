"""`lotus tune` on a terminal: its progress and its result."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotus.common.terminal.stderr import say
from lotus.common.text.formatting import (
    MISSING,
    amount,
    command,
    duration,
    plain,
    plural,
    share,
    size,
)
from lotus.reporters.base.console import RIGHT, print_paragraph, print_table
from lotus.reporters.base.status_line import StatusLine

if TYPE_CHECKING:
    from rich.console import Console

    from lotus.settings.space import Measurement, Setting
    from lotus.tune.search.outcome.result import Result
    from lotus.tune.search.search import SearchProgress

SCHEMA = 1
_REASONS = 6  # the most reasons why settings were ruled out


def document(result: Result, *, output: Path | None) -> dict[str, Any]:
    """Return the result as a JSON document with the fields of lotus.tune.Result.

    `settings` is the path of the file of settings, null if none could be written.
    """
    file = None if output is None else str(output)
    return {"schema": SCHEMA, "settings": file, **result.as_json()}


class TuneProgress:
    """Reports a search on stderr: a line per trial and, on a terminal, the current one."""

    def __init__(self, terminal: bool) -> None:
        self._terminal = terminal
        self._line = StatusLine()

    def __call__(self, progress: SearchProgress) -> None:
        from lotus.tune.search.outcome import search_notes

        used = f"{progress.spent_s:.0f} of {progress.budget_s:g} s"
        what = search_notes.setting(progress.setting)
        if progress.measurement is not None:
            self.clear()
            say(f"lotus: {used}: {what}: {plain(_gave(progress.measurement))}")
        elif self._terminal:
            more = "" if progress.speedup is None else f", {progress.speedup.mean:.2f} times"
            self._line.show(f"lotus: {used}: {progress.doing} {what}{more} ...")
        elif progress.doing == "checking samples":
            say(f"lotus: {used}: checking that {what} give the same samples")

    def trains(self, setting: Setting) -> None:
        """Report that the program trains for a while with this setting."""
        from lotus.tune.search.outcome import search_notes

        say(f"lotus: the program trains on with {search_notes.setting(setting)}, for a comparison")

    def clear(self) -> None:
        """Clear the line of the current trial."""
        self._line.clear()


def _gave(measurement: Measurement) -> str:
    if measurement.failed:
        return f"failed: {measurement.failed}"
    return f"{amount(measurement.samples_per_s)} samples/s{_between(measurement)}"


def _between(measurement: Measurement) -> str:
    if not math.isfinite(measurement.high):
        return ""
    return f" ({amount(measurement.low)} to {amount(measurement.high)})"


def write(
    console: Console,
    result: Result,
    *,
    words: Sequence[str],
    output: Path | None,
    table: bool = False,
    options: Sequence[object] = (),
) -> None:
    """Print the result for the program of this command line: the answer, what to do, and why.

    `output` is the file of settings, None if it could not be written. `table` adds all trials.
    `options`: those of this call that a longer one would have, too.
    """
    from lotus.tune.search.outcome import search_notes

    console.print(f"\nTuned: {plain(result.watched.title())}", style="bold")
    for label, text in _verdict(result):
        print_paragraph(console, label, plain(text))
    if option := _longer(result):
        line = command(["lotus", "tune", *option.split(), *options, "--", *words])
        console.print(f"  {'next':11} more time: {line}", soft_wrap=True)
        print_paragraph(console, "or", search_notes.WHILE_QUIET)
    if output is not None:
        own = result.best.normal() == result.own.normal()
        what = ", with the program's own settings" if own else ""
        print_paragraph(console, "written", plain(f"{output}{what}"))
    if result.best.normal() != result.own.normal():
        _write_next(console, result, words, output)
    title = (
        f"Trials: {plural(result.settings_tried, 'setting')} in "
        f"{duration(result.seconds * 1e9)} of {duration(result.budget_s * 1e9)}, "
        f"{result.cores:g} core{'s' if result.cores != 1 else ''} ({plain(result.cores_why)})"
    )
    if table:
        _write_table(console, result, title)
    else:
        console.print(f"\n{title}; --table shows each", style="bold", soft_wrap=True)
    for text in result.other_threads():
        print_paragraph(console, "threads", text)
    if result.step():
        print_paragraph(console, "step", result.step())
    if result.best.torch_threads is not None:
        print_paragraph(console, "trials", search_notes.trials_had(result.watched.threads))
    if result.reason and not result.untried:
        print_paragraph(console, "search", plain(result.reason))
    if result.operations is not None:
        from lotus.tune.search.outcome import operation_costs

        for words_of_costs in operation_costs.words(result.operations):
            print_paragraph(console, "operations", plain(words_of_costs))
    for note in result.notes:
        print_paragraph(console, "note", plain(note))


def _write_next(
    console: Console, result: Result, words: Sequence[str], output: Path | None
) -> None:
    """Print how the result is applied."""
    from lotus.settings import tuned_file

    if output is not None:
        file_words = [] if output == tuned_file.DEFAULT else ["--settings", output]
        console.print("\nTo train with it:", style="bold")
        console.print(f"  {command(['lotus', 'run', *file_words, '--', *words])}", soft_wrap=True)
    console.print("\nIn the code:" if output is None else "or in the code:", style="bold")
    for line in tuned_file.code_change(result.best):
        console.print(f"  {line}", soft_wrap=True)


def _write_table(console: Console, result: Result, title: str) -> None:
    """Print all trials, why each setting was tried, and which were not."""
    every = _rows(result)
    more = any(cells[3] for cells, _ in every)
    columns = [
        ("", RIGHT),
        ("workers", RIGHT),
        ("prefetch", RIGHT),
        *([("more", RIGHT)] if more else []),
        ("samples/s", RIGHT),
        ("95 %", RIGHT),
        ("first batch", RIGHT),
        ("memory", RIGHT),
        ("took", RIGHT),
    ]
    rows = [cells if more else [*cells[:3], *cells[4:]] for cells, _ in every]
    print_table(console, title, columns, rows)
    console.print()
    for cells, why in every:
        print_paragraph(console, f"{cells[1]} x {cells[2]}".removesuffix(f" x {MISSING}"), why)
    for label, text in _never(result):
        print_paragraph(console, label, plain(text))


def _verdict(result: Result) -> list[tuple[str, str]]:
    from lotus.tune.search.outcome import search_notes

    best, own = search_notes.setting(result.best), search_notes.setting(result.own)
    if result.failure:
        return [("verdict", result.failure)]
    if result.untried:
        step = search_notes.next_step(result.untried)
        lines = [("verdict", f"no other setting could be tried: keep {own}")]
        return [*lines, ("why", result.untried), *([("next", step)] if step else [])]
    if result.speedup is None:
        if result.best.normal() == result.own.normal():
            return [("verdict", f"nothing was found: keep {own}")]
        return [("verdict", f"{best} worked; {own}, the program's own, was not measured")]
    if result.benefit:
        shown = search_notes.speedup(result.speedup)
        lines = [("verdict", f"{result.change()}: {shown}")]
        if result.checked is not None:
            steps = search_notes.checked(result.checked, result.best)
            lines = [("verdict", f"{result.change()}: {steps}")]
            if result.speedup != result.checked.speedup:
                lines.append(("trials", f"{shown}, in which its step is emulated"))
        return lines
    if result.undecided():
        lines = [("verdict", result.undecided())]
        return lines if result.longer_option() else [*lines, ("next", result.longer())]
    if result.best.normal() == result.own.normal() and result.interrupted:
        return [("verdict", f"nothing has been shown to be faster than {own} so far")]
    if result.best.normal() == result.own.normal() and result.out_of_time:
        return [("verdict", search_notes.only_own(result.own, result.seconds))]
    return [("verdict", f"no benefit: no other setting was shown to be faster; keep {own}")]


def _longer(result: Result) -> str:
    """Return the option with which more time may find something; "" where it is not lacking."""
    from lotus.tune.search.outcome import search_notes

    if result.failure or result.untried or result.speedup is None or result.benefit:
        return ""
    if result.undecided():
        return result.longer_option()
    nothing = result.best.normal() == result.own.normal()
    if nothing and result.out_of_time and not result.interrupted:
        return search_notes.longer_option(result.budget_s, times=3)
    return ""


def _name(setting: Setting) -> str:
    from lotus.tune.search.outcome import search_notes

    return search_notes.setting(setting)


def _mean_rate(measured: Sequence[Measurement]) -> float | None:
    return (
        statistics.mean(measurement.samples_per_s for measurement in measured) if measured else None
    )


def _rows(result: Result) -> list[tuple[list[str], str]]:
    """Return (cells, why) per setting, in the order of first trials; blocks are averaged."""
    from lotus.tune.search.outcome.rejected_settings import passed_over

    whys: dict[Setting, tuple[list[Measurement], str]] = {}
    for row in result.measured:
        setting = row.measurement.setting.normal()
        whys.setdefault(setting, ([], row.why))[0].append(row.measurement)
    rows = []
    # With other torch threads, trials do not show why.
    not_chosen = {} if result.best.torch_threads is not None else passed_over(result)
    loader = dataclasses.replace(result.best.normal(), torch_threads=None)  # as it was in trials
    for setting, (measured, why) in whys.items():
        name = [
            "*" if setting == loader else "",
            str(setting.num_workers),
            MISSING if setting.prefetch_factor is None else str(setting.prefetch_factor),
            _more(setting),
        ]
        worked = [measurement for measurement in measured if not measurement.failed]
        failed = [measurement.failed for measurement in measured if measurement.failed]
        took = duration(sum(measurement.seconds for measurement in measured) * 1e9)
        words = f"failed: {failed[-1]}" if failed else why
        words = plain(
            "; ".join(
                measurement for measurement in (words, not_chosen.get(setting, "")) if measurement
            )
        )
        if not worked:
            rows.append(([*name, MISSING, MISSING, MISSING, MISSING, took], words))
            continue
        first = [
            measurement.first_batch_s
            for measurement in worked
            if measurement.first_batch_s is not None
        ]
        memory = [
            measurement.memory_bytes
            for measurement in worked
            if measurement.memory_bytes is not None
        ]
        figures = [
            amount(_mean_rate(worked) or 0.0),
            _interval(worked),
            duration(statistics.median(first) * 1e9) if first else MISSING,
            size(max(memory)) if memory else MISSING,
        ]
        rows.append(([*name, *figures, took], words))
    return rows


def _more(setting: Setting) -> str:
    """Return a setting's parameters besides workers and prefetch."""
    return _name(setting).partition(", ")[2]


def _interval(worked: Sequence[Measurement]) -> str:
    """Return half the 95 % interval of the mean, relative to it; blocks are independent."""
    halves = [(measurement.high - measurement.low) / 2 for measurement in worked]
    mean = _mean_rate(worked)
    if not mean or not all(math.isfinite(half) for half in halves):
        return MISSING
    if len(worked) == 1 and not halves[0] > 0:  # its rate depends only on set-up times
        return MISSING
    return f"±{share(math.hypot(*halves) / len(halves) / mean)}"


def _never(result: Result) -> list[tuple[str, str]]:
    """Return a line per reason why settings were never tried, the most frequent reason first."""
    from lotus.tune.search.outcome import search_notes

    groups = search_notes.grouped(result.ruled_out)
    lines = [("never tried", search_notes.never(those, why)) for those, why in groups[:_REASONS]]
    if len(groups) > _REASONS:
        rest = sum(len(those) for those, _ in groups[_REASONS:])
        lines.append(
            ("", f"and {plural(rest, 'setting')} more, for {len(groups) - _REASONS} reasons")
        )
    return lines
