"""The end of `lotus advise`: which alternatives made the loop faster, and how to apply them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from lotus.advise.alternatives import applied_alternatives
from lotus.advise.alternatives.tried_alternatives import WORTH
from lotus.advise.ceilings import ceiling_blocks
from lotus.advise.ceilings.ceilings import ALL, EXACT
from lotus.common.text.formatting import factor_between, plain
from lotus.reporters.base.console import print_paragraph

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from lotus.advise.alternatives.tried_alternatives import Alternatives
    from lotus.advise.ceilings.ceilings import Ceilings

_WHAT = {EXACT: "with those that change no value", ALL: "with all that can be put in"}


def write(
    console: Console,
    result: Ceilings,
    *,
    others: Alternatives,
    words: Sequence[str],
    again: str,
    output: Path | None,
) -> None:
    """Print what was measured with alternatives in the loop; `output` is the file, if any.

    `words`: the program's command; `again`: the one that measures it once more, with more time.
    """
    for kind, what in _WHAT.items():
        speedup = result.over(kind)
        if speedup is not None and speedup.tells_nothing:
            text = f"whether the loop was faster {what} cannot be told"
            print_paragraph(console, "in training", text)
        elif speedup is not None:
            between = factor_between(speedup.mean, speedup.low, speedup.high)
            print_paragraph(console, "in training", f"the loop was {between} times as fast {what}")
    _write_refused(console, result)
    if output is None:
        _write_none(console, result, again)
        return
    allowed = [use.name for use in applied_alternatives.uses(result, others) if not use.exact]
    command = ["lotus", "run", "--settings", str(output)]
    for name in allowed:
        command += ["--allow", name]
    console.print(f"\n{output} is written. To train with them, your code unchanged:", style="bold")
    console.print(f"  {plain(shlex.join([*command, '--', *words]))}", soft_wrap=True)
    if allowed:
        text = f"--allow lets {' and '.join(allowed)} change values as shown above"
        print_paragraph(console, "note", text)


def write_problem(console: Console, problem: str) -> None:
    """Print why no alternative was measured in training, after all that was said since."""
    text = f"No file is written: {plain(problem)}"
    console.print(f"\n{text}", style="bold", soft_wrap=True)


def _write_none(console: Console, result: Ceilings, again: str) -> None:
    """Print why no file is written and, where blocks tell too little, how to try again."""
    speedups = [speedup for kind in _WHAT if (speedup := result.over(kind)) is not None]
    faster = any(speedup.shows(WORTH) for speedup in speedups)
    apart = result.differ(*(kind for kind in _WHAT if result.over(kind) is not None))
    if faster and applied_alternatives.beyond_ceiling(result):
        why = (
            "alternatives cannot gain more than data that is always ready, which was not shown to "
            "gain."
        )
    elif apart:
        why = f"the blocks differ too much to tell whether an alternative helps: {apart}."
    elif speedups:
        why = "no alternative was shown to help."
    else:
        why = "the loop was not measured with alternatives."
    console.print(f"\nNo file is written: {why}", style="bold", soft_wrap=True)
    if apart or faster or (not speedups and ceiling_blocks.SHORT in result.refused.values()):
        quiet = "To try again, best while other programs use less of the cores:"
        console.print(quiet)
        console.print(f"  {plain(again)}", soft_wrap=True)


def _write_refused(console: Console, result: Ceilings) -> None:
    """Print why alternatives were not measured in training; equal reasons are printed once."""
    whys: dict[str, list[str]] = {}
    for kind, what in _WHAT.items():
        if kind in result.refused:
            whys.setdefault(result.refused[kind], []).append(what)
    for why, whats in whys.items():
        what = whats[0] if len(whats) == 1 else "with alternatives"
        print_paragraph(console, "in training", plain(f"not measured {what}: {why}"))
