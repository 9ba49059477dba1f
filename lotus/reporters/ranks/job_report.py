"""`lotus whatif --ranks` on a terminal and as a document."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from lotus.balance.job_whatif import JobPrediction
from lotus.common.text.formatting import MISSING, amount, plain, seconds, share
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table
from lotus.tune.simulation import model_error
from lotus.tune.simulation.job_simulation import JobOutcome

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

SCHEMA = 1
_NEXT = (
    "`lotus trace -o RUN -- COMMAND` for more steps, while nothing else uses the machines; "
    "`lotus report RUN` says who holds the others up without simulating"
)
_NAMED, _OFTEN = 3, 0.05  # ranks that come last most often, in so many steps at least


def document(answer: JobPrediction) -> dict[str, Any]:
    """Return fields as in lotus.tune.simulation.job_simulation.JobOutcome, seconds or null."""
    return {
        "schema": SCHEMA,
        "title": answer.job.title,
        "measured": {
            "ranks": len(answer.job.ranks),
            "step_s": answer.measured_s,
            "batch_sizes": list(answer.job.batch_sizes),
        },
        "today": _outcome(answer.today),
        "whatif": _outcome(answer.then),
        "times_the_samples_per_second": answer.times,
        "error_of_today": answer.error,
        "collective": answer.collective,
        "notes": list(answer.notes),
    }


def _outcome(outcome: JobOutcome) -> dict[str, Any]:
    fields = {
        field.name: getattr(outcome, field.name)
        for field in dataclasses.fields(outcome)
        if field.name != "last"
    }
    return {
        **fields,
        "straggler_share": outcome.straggler_share,
        "last": [round(value, 6) for value in outcome.last.tolist()],
    }


def write(console: "Console", answer: JobPrediction) -> None:
    """Print the job with and without the changes, side by side."""
    today, then, measured = answer.today, answer.then, answer.measured_s
    columns = [("", LEFT), ("measured", RIGHT), ("simulated", RIGHT), ("what if", RIGHT)]
    rate = answer.job.global_batch / measured if measured > 0 else math.nan

    def row(name: str, words: Any, label: str, known: str = MISSING) -> list[str]:
        return [label, known, *(words(getattr(outcome, name)) for outcome in (today, then))]

    rows = [
        row("ranks", amount, "ranks", amount(len(answer.job.ranks))),
        row("samples_per_s", amount, "samples/s", amount(rate)),
        row("step_s", seconds, "step", seconds(measured)),
        row("step_p95_s", seconds, "  slowest of 20"),
        row("input_s", seconds, "  waits for its batch"),
        row("own_s", seconds, "  its own"),
        row("waiting_s", seconds, "  waits for the last rank"),
        row("collective_s", seconds, "  collective"),
        row("straggler_share", share, "straggler's share"),
        row("efficiency", share, "efficiency"),
    ]
    speedup = answer.times
    if speedup is None:  # hide the prediction, because it is not reliable
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    print_table(console, f"What if: {plain(answer.job.title)}", columns, rows)
    console.print()
    if speedup is None:
        print_paragraph(console, "last", f"today {_last(today)}")
        print_paragraph(console, "what if", f"{model_error.no_answer(answer.error)}.")
        print_paragraph(console, "next", _NEXT)
    else:
        print_paragraph(console, "collective", answer.collective)
        print_paragraph(console, "last", f"today {_last(today)}; what if {_last(then)}")
        words = "as many" if abs(speedup - 1) < 0.005 else f"{speedup:.2f} times as many"
        print_paragraph(
            console,
            "what if",
            f"{words} samples a second as today; efficiency is against the same ranks if none "
            "waited for another and nothing was exchanged",
        )
    if not math.isnan(answer.error):
        accuracy = f"the run itself is simulated {answer.error:+.1%} off its measured step"
        print_paragraph(console, "reliance", accuracy)
    for note in answer.notes:
        print_paragraph(console, "note", plain(note))


def _last(outcome: JobOutcome) -> str:
    """Return which ranks are last more often than by chance."""
    if outcome.ranks < 2:
        return "there is one rank"
    order = np.argsort(-outcome.last, kind="stable")[:_NAMED]
    least = max(1.5 / outcome.ranks, _OFTEN)
    often = [rank for rank in order.tolist() if outcome.last[rank] > least]
    if not often:
        return "no rank more often than others"
    return ", ".join(f"rank {rank} in {share(float(outcome.last[rank]))}" for rank in often)
