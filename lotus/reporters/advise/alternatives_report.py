"""The alternatives of `lotus advise` on a terminal and as a part of its document."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from lotus.advise.ceilings.ceilings import MOST, WIDE
from lotus.common.storage import files
from lotus.common.text import decoder_name
from lotus.common.text.formatting import duration, factor_between, plain, plural, share, size
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table
from lotus.reporters.base.status_line import StatusLine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from lotus.advise.alternatives.tried_alternatives import (
        Alternatives,
        OutputChange,
        TriedAlternative,
    )
    from lotus.tune.search.trials.trial_rates import Speedup

_BAR = 20  # characters
_GAINS = 1.05  # the least ceiling that is worth a plan


def document(result: Alternatives) -> dict[str, Any]:
    """Return the result as a part of a JSON document."""
    data = {
        "tried": [
            {
                **dataclasses.asdict(each),
                "faster": each.faster,
                "predicted": result.predicted(each),
                "predicted_range": result.predicted_range(each),
            }
            for each in result.tried
        ],
        "untried": [{"title": title, "why": why} for title, why in result.untried],
        "operations": dict(result.operations),
        "places": dict(result.places),
        "notes": list(result.notes),
    }
    made: dict[str, Any] = files.json_value(data)
    return made


def write(console: Console, result: Alternatives, *, ceiling: Speedup | None) -> None:
    """Print what was shown to be faster, then the rest; `ceiling` is the loop's, if known."""
    console.print("\nOther ways to do the same", style="bold")
    if result.operations:
        rows = [
            [
                plain(_shown(result, name)),
                duration(seconds * 1e9),
                plain(result.places.get(name, "")),
            ]
            for name, seconds in result.operations.items()
        ]
        columns = [("operation", LEFT), ("CPU a sample", RIGHT), ("at", LEFT)]
        print_table(console, "On one thread, on the program's own samples", columns, rows)
        console.print()
    for each in result.tried:
        if each.faster:
            _write_faster(console, result, each, ceiling)
    for each in result.tried:
        if not each.faster:
            text = f"{each.title}: {_times(each.speedup)} in place of {_replaced(result, each)}"
            print_paragraph(console, "not faster", plain(text))
    for title, why in result.untried:
        print_paragraph(console, "not tried", plain(f"{_shown(result, title)}: {why}"))
    unknown, part = result.without_alternative()
    if unknown:
        names = _joined([_shown(result, name) for name in unknown])
        text = f"no other way was tried for {names}: {share(part)} of the CPU time of a sample"
        print_paragraph(console, "none", plain(text))
    elif not result.tried and not result.untried:
        print_paragraph(console, "none", "no alternative is known for these operations")
    for note in result.notes:
        print_paragraph(console, "note", plain(note))
    if ceiling is not None and ceiling.low > _GAINS:
        print_paragraph(console, "next", "lotus plan -- COMMAND says whether caching samples pays")


def _write_faster(
    console: Console, result: Alternatives, each: TriedAlternative, ceiling: Speedup | None
) -> None:
    console.print(f"  {plain(each.title)}", style="bold")
    names = _replaced(result, each)
    print_paragraph(
        console,
        "measured",
        plain(
            f"{_times(each.speedup)} in place of {names}: {duration(each.before_s * 1e9)} of CPU "
            f"time become {duration(each.after_s * 1e9)}, over {plural(each.samples, 'sample')}"
        ),
    )
    print_paragraph(console, "output", plain(_output(each.output)))
    if each.before_peak_bytes is not None and each.after_peak_bytes is not None:
        before, after = size(each.before_peak_bytes), size(each.after_peak_bytes)
        print_paragraph(console, "memory", f"at most {before} a sample become {after}")
    predicted = result.predicted(each)
    if predicted is not None:
        ends = result.predicted_range(each)
        between = "" if ends is None else f" ({ends[0]:.2f} to {ends[1]:.2f})"
        text = f"where cores bind, they make {predicted:.2f}{between} times as many samples"
        if ceiling is not None and not ceiling.is_significant:
            text += "; that data is waited for was not shown, so the loop may gain nothing"
        elif ceiling is not None and ceiling.mean <= MOST and ceiling.high <= WIDE * ceiling.low:
            most = factor_between(ceiling.mean, ceiling.low, ceiling.high)
            text += f"; the loop gains at most its ceiling, {most} times"
        print_paragraph(console, "predicted", text)
    print_paragraph(console, "known", plain(each.known))
    if each.places:
        print_paragraph(console, "at", plain(", ".join(dict.fromkeys(each.places))))
    print_paragraph(console, "change", plain(each.change))
    if each.diff:
        console.print()
        for line in each.diff.splitlines():
            console.print(f"    {plain(line)}", soft_wrap=True, markup=False)
    console.print()


def _replaced(result: Alternatives, each: TriedAlternative) -> str:
    return _joined([_shown(result, name) for name in each.replaces])


def _joined(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _shown(result: Alternatives, operation: str) -> str:
    if operation != decoder_name.STORED:
        return operation
    return "the data set's own code" if result.decoder is None else f"decode ({result.decoder})"


def _times(speedup: Speedup) -> str:
    return f"{factor_between(speedup.mean, speedup.low, speedup.high)} times as fast"


def _output(output: OutputChange) -> str:
    kind = output.before
    if output.after != kind:
        kind += f" becomes {output.after}"
    if output.before_bytes is not None and output.after_bytes is not None:
        before, after = size(output.before_bytes), size(output.after_bytes)
        kind += f", {before}" if before == after else f", {before} become {after}"
    if output.equal is None or output.largest is None or output.mean is None:
        return f"{kind}; it has another shape, so that values cannot be compared"
    if output.equal:
        return f"{kind}; equal bit for bit"
    psnr = "" if output.psnr_db is None else f", PSNR {output.psnr_db:.1f} dB"
    return (
        f"{kind}; values differ by at most {output.largest:.3g}, {output.mean:.3g} in the mean, of "
        f"a range of {output.range:.3g}{psnr}"
    )


class TrialProgress:
    """Shows on a terminal's stderr which operation or alternative is tried."""

    def __init__(self, terminal: bool) -> None:
        self._terminal, self._line = terminal, StatusLine()

    def __call__(self, event: Mapping[str, Any]) -> None:
        if self._terminal:
            title = str(event["title"])
            if title == decoder_name.STORED:  # or its decoder, which is not known yet
                title = "the data set's own code"
            self._line.show(progress_bar(event["number"] / event["steps"], title))

    def clear(self) -> None:
        """Clear the bar."""
        self._line.clear()


def progress_bar(part: float, text: str) -> str:
    """Return a line with a bar, of which `part` is filled."""
    bar = ("#" * round(min(part, 1.0) * _BAR)).ljust(_BAR, ".")
    return f"lotus: [{bar}] {text}"
