"""The verdict on a terminal, of a run that was recorded or sampled from outside."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lotus.analysis.verdict.verdict import Verdict
from lotus.common.text.formatting import plain
from lotus.reporters.base.console import print_paragraph
from lotus.reporters.run.parts import coverage

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console


def write(
    console: "Console",
    judged: Verdict,
    *,
    headline: str,
    rival: str = "",
    has_advice: bool = True,
    expected: str = "",
    ruled_out: Sequence[str] = (),
) -> None:
    """Print the verdict, what to know of it, its first cause and what to do about it.

    `headline`: the verdict in capitals; `rival`: a sentence on a cause that may be as large as the
    first. `expected`: the predicted gain of the next step, which stands only with `has_advice`.
    """
    console.print(headline, style=f"bold {coverage.verdict_colour(judged)}")
    print_paragraph(console, "", judged.summary)
    for line in (judged.doubt, *judged.flaws):
        if line:
            print_paragraph(console, "", line)
    if judged.causes:
        first = judged.causes[0]
        words = f"{plain(first.title)}, {coverage.share_words(first, judged)}."
        print_paragraph(console, "First cause", words)
        if rival:
            print_paragraph(console, "", rival)
        if first.reason and first.reason not in judged.flaws:
            print_paragraph(console, "Reason", first.reason)
        if has_advice:
            print_paragraph(console, "Next step", plain(first.advice))
            if expected:
                print_paragraph(console, "Expected", f"{expected}.")
    if ruled_out:
        print_paragraph(console, "Ruled out", ", ".join(ruled_out))
