"""`lotus whatif` on a terminal and as a document."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from lotus.common.text.formatting import MISSING, amount, plain, seconds, share, size
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table
from lotus.tune.simulation import model_error
from lotus.tune.simulation.bottleneck import Binding
from lotus.tune.simulation.run_profile import Figures
from lotus.tune.simulation.simulation_types import LoaderOutcome
from lotus.tune.simulation.what_if import WhatIfAnswer, setting_words

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

SCHEMA = 1
_NEXT = (
    "`lotus tune -- COMMAND` tries settings on the program itself; a longer run, recorded while "
    "nothing else uses the machine, may be simulated better"
)


def document(answer: WhatIfAnswer) -> dict[str, Any]:
    """Return a JSON document with the fields of `LoaderOutcome`, `Figures` and `Binding`; null:
    not known."""
    return {
        "schema": SCHEMA,
        "loader": answer.profile.loader,
        "title": answer.profile.title,
        "measured": dataclasses.asdict(answer.measured),
        "today": _outcome(answer.today, answer.today_binding),
        "whatif": _outcome(answer.then, answer.then_binding),
        "times_as_fast": answer.times,
        "error_of_today": answer.error,
        "machine": dataclasses.asdict(answer.machine),
        "machine_of_run": dataclasses.asdict(answer.profile.machine(answer.contention)),
        "notes": answer.notes,
    }


def _outcome(outcome: LoaderOutcome, bound: Binding) -> dict[str, Any]:
    fields = {
        field.name: getattr(outcome, field.name)
        for field in dataclasses.fields(outcome)
        if field.name not in ("timeline", "setting")
    }
    return {
        "setting": outcome.setting.as_json(),
        **fields,
        "binds": bound.resource or None,
        "reason": bound.reason,
        "gains": [dataclasses.asdict(gain) for gain in bound.gains],
    }


def write(console: "Console", answer: WhatIfAnswer) -> None:
    """Print measured, simulated and changed performance side by side, and the bottlenecks."""
    today, then = answer.today, answer.then
    why_not = model_error.no_answer(answer.error)
    columns = [("", LEFT), ("measured", RIGHT), ("simulated", RIGHT), ("what if", RIGHT)]
    rows = [
        ["samples/s", *_row(answer, "samples_per_s", amount)],
        ["  after warm-up", *_row(answer, "steady_samples_per_s", amount)],
        ["first batch", *_row(answer, "first_batch_s", seconds)],
        ["waiting, start-up, shut-down", *_row(answer, "wait_share", share)],
        ["whole loop", *_row(answer, "seconds", seconds)],
        ["cores busy", MISSING, f"{today.cores:.1f}", f"{then.cores:.1f}"],
        ["workers idle", MISSING, *(share(outcome.idle_share) for outcome in (today, then))],
        [
            "batches in flight",
            MISSING,
            *(amount(outcome.peak_batches) for outcome in (today, then)),
        ],
        ["  their memory", MISSING, *(size(outcome.in_flight_bytes) for outcome in (today, then))],
        ["total memory", MISSING, *(size(outcome.memory_bytes) for outcome in (today, then))],
    ]
    if why_not:  # hide a prediction that is not reliable
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    print_table(console, f"What if: {plain(answer.profile.title)}", columns, rows)
    console.print()
    cores = answer.profile.cores
    print_paragraph(console, "today", f"{setting_words(today.setting)}, {cores:g} cores")
    if why_not:
        print_paragraph(console, "what if", f"{why_not}.")
        print_paragraph(console, "next", _NEXT)
    else:
        changed = f"{setting_words(then.setting)}, {answer.machine.cores:g} cores"
        print_paragraph(console, "what if", changed)
        print_paragraph(console, "", _compared(answer))
        if math.isfinite(then.memory_bytes):
            print_paragraph(console, "memory", _memory(answer))
        print_paragraph(console, "today", answer.today_binding.reason)
        print_paragraph(console, "what if", answer.then_binding.reason)
    if math.isfinite(answer.error):
        print_paragraph(
            console,
            "reliance",
            f"the run itself is simulated {answer.error:+.1%} off its measured rate",
        )
    for note in answer.notes:
        print_paragraph(console, "note", plain(note))


def _memory(answer: WhatIfAnswer) -> str:
    """Return the terms of "total memory" of the simulated setting."""
    fixed, then = answer.profile.fixed, answer.then
    terms = [f"main process {size(fixed['main_bytes'])} besides mapped files"]
    workers = then.setting.num_workers
    if workers:
        noun = "worker" if workers == 1 else "workers"
        terms.append(f"{workers} {noun} x {size(fixed['worker_bytes'])} of their own")
    return f"{', '.join(terms)}, batches in flight {size(then.in_flight_bytes)}"


def _row(answer: WhatIfAnswer, name: str, words: Any) -> list[str]:
    figures: tuple[Figures | LoaderOutcome, ...] = (answer.measured, answer.today, answer.then)
    return [words(getattr(figure, name)) for figure in figures]


def _compared(answer: WhatIfAnswer) -> str:
    times, steady = answer.times, answer.steady_times
    assert times is not None
    words = f"{_times(times)} today"
    if steady is not None and abs(steady / times - 1) >= 0.05:
        words += f"; after the warm-up {_times(steady)} today"
    return words[0].upper() + words[1:] + "."


def _times(times: float) -> str:
    return "as fast as" if abs(times - 1) < 0.02 else f"{times:.2f} times as fast as"
