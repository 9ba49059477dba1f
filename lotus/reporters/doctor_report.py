"""`lotus doctor` on a terminal: the summary, then by area what works, what is missing and its fix.

Commands after `$` are never wrapped, so that they can be copied.
"""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lotus.common.text.formatting import plain, plural
from lotus.doctor.checks import GAP, OK, Finding
from lotus.doctor.examination import Report

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

_WIDEST = 100
_MARKS = {OK: ("ok", "green"), GAP: ("gap", "yellow")}
_LABEL = 16


def write(console: "Console", report: Report, *, everything: bool = False) -> None:
    """Print the report; the checks that passed only with `everything`."""
    width = max(min(console.width, _WIDEST), 40)
    for name, text in report.summary.items():
        colour = "green" if text.startswith("yes") else "yellow"
        _lines(console, f"{name + ':':10} ", text, width, f"bold {colour}")
    gaps = [finding for finding in report.findings if finding.state == GAP]
    areas = dict.fromkeys(finding.area for finding in report.findings)
    for area in areas:
        findings = [
            finding
            for finding in report.findings
            if finding.area == area and (everything or not _is_detail(finding))
        ]
        if findings:
            console.print(f"\n{area.capitalize()}", style="bold")
        for finding in findings:
            _finding(console, finding, width)
    console.print()
    if gaps:
        _lines(console, "", _ending(gaps), width, "")
    else:
        console.print("No gaps.")


def _ending(gaps: Sequence[Finding]) -> str:
    """Return the number of gaps, and how their fixes are marked."""
    words = []
    if any(gap.fixes for gap in gaps):
        words.append('type what follows "$"')
    if any(gap.asks for gap in gaps):
        words.append('ask your administrator for what follows "Ask for:"')
    marked = "; ".join(words)
    return f"{plural(len(gaps), 'gap')}. {marked[:1].upper()}{marked[1:]}.".removesuffix(" .")


def _is_detail(finding: Finding) -> bool:
    """Return True if few users need this finding: symbols that are available."""
    return finding.area == "symbols" and finding.state == OK


def _finding(console: "Console", finding: Finding, width: int) -> None:
    mark, colour = _MARKS.get(finding.state, ("", ""))
    label = f"  {mark:4}{plain(finding.topic):{_LABEL - 1}} "
    _lines(console, label, finding.text, width, colour)
    indent = " " * len(label)
    for fix in finding.fixes:
        console.print(f"{indent}$ {plain(fix)}", style="bold", soft_wrap=True)
    for ask in finding.asks:
        _lines(console, indent, f"Ask for: {ask}", width, "bold")
    if finding.meanwhile:
        _lines(console, indent, f"Still works: {finding.meanwhile}.", width, "dim")


def _lines(console: "Console", label: str, text: str, width: int, style: str) -> None:
    wrapped = textwrap.wrap(
        plain(text),
        width - 1,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_on_hyphens=False,
        break_long_words=False,
    )
    for line in wrapped:
        console.print(line, style=style or None, soft_wrap=True)
