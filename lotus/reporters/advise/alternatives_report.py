"""The alternatives of `lotus advise` on a terminal and as a part of its document."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from lotus.advise.ceilings import MOST
from lotus.common import files
from lotus.common.formatting import duration, plain, plural
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from lotus.advise.tried_alternatives import Alternatives, OutputChange, TriedAlternative
    from lotus.tune.search.trial_rates import Speedup

_GAINS = 1.05  # the least ceiling that is worth a plan


def document(result: Alternatives) -> dict[str, Any]:
    """Return the result as a part of a JSON document."""
    data = {
        "tried": [
            {
                **dataclasses.asdict(each),
                "faster": each.faster,
                "predicted": result.predicted(each),
            }
            for each in result.tried
        ],
        "untried": [{"title": title, "why": why} for title, why in result.untried],
        "operations": dict(result.operations),
        "notes": list(result.notes),
    }
    made: dict[str, Any] = files.json_value(data)
    return made


def write(console: Console, result: Alternatives, *, ceiling: Speedup | None) -> None:
    """Print what was shown to be faster, then the rest; `ceiling` is the loop's, if known."""
    console.print("\nOther ways to do the same", style="bold")
    if result.operations:
        rows = [[name, duration(seconds * 1e9)] for name, seconds in result.operations.items()]
        columns = [("operation", LEFT), ("CPU a sample", RIGHT)]
        print_table(console, "On one thread, on the program's own samples", columns, rows)
        console.print()
    for each in result.tried:
        if each.faster:
            _write_faster(console, result, each, ceiling)
    for each in result.tried:
        if not each.faster:
            text = f"{each.title}: {_times(each.speedup)} in place of {' and '.join(each.replaces)}"
            print_paragraph(console, "not faster", plain(text))
    for title, why in result.untried:
        print_paragraph(console, "not tried", plain(f"{title}: {why}"))
    for note in result.notes:
        print_paragraph(console, "note", plain(note))
    if not result.tried and not result.untried:
        print_paragraph(console, "none", "no alternative is known for these operations")
    if ceiling is not None and ceiling.low > _GAINS:
        print_paragraph(console, "next", "lotus plan -- COMMAND says whether keeping samples pays")


def _write_faster(
    console: Console, result: Alternatives, each: TriedAlternative, ceiling: Speedup | None
) -> None:
    console.print(f"  {plain(each.title)}", style="bold")
    names = " and ".join(each.replaces)
    print_paragraph(
        console,
        "measured",
        plain(
            f"{_times(each.speedup)} in place of {names}: {duration(each.before_s * 1e9)} of CPU "
            f"time become {duration(each.after_s * 1e9)}, over {plural(each.samples, 'sample')}"
        ),
    )
    print_paragraph(console, "output", plain(_output(each.output)))
    predicted = result.predicted(each)
    if predicted is not None:
        text = f"where cores bind, they make {predicted:.2f} times as many samples"
        if ceiling is not None and ceiling.mean <= MOST:
            text += f"; the loop gains at most its ceiling, {max(ceiling.mean, 1.0):.2f} times"
        print_paragraph(console, "predicted", text)
    print_paragraph(console, "known", plain(each.known))
    if each.places:
        print_paragraph(console, "at", plain(", ".join(each.places)))
    print_paragraph(console, "change", plain(each.change))
    console.print()


def _times(speedup: Speedup) -> str:
    interval = f"({speedup.low:.2f} to {speedup.high:.2f})"
    return f"{speedup.mean:.2f} {interval} times as fast"


def _output(output: OutputChange) -> str:
    kind = output.before
    if output.after != kind:
        kind += f" becomes {output.after}"
    if output.equal is None or output.largest is None or output.mean is None:
        return f"{kind}; it has another shape, so that values cannot be compared"
    if output.equal:
        return f"{kind}; equal bit for bit"
    return (
        f"{kind}; values differ by at most {output.largest:.3g}, {output.mean:.3g} in the mean, of "
        f"a range of {output.range:.3g}"
    )
