"""The text after the traced program has ended: how it went, what was seen, what to type next."""

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lotus.common.errors import LotusError
from lotus.common.machine import host
from lotus.common.terminal.progress import progress
from lotus.reading import missing_data
from lotus.recording.launcher import ProgramOutcome

if TYPE_CHECKING:
    from lotus.reading.run import Run

# Reading needs about twenty bytes of memory per byte of the logs. Larger logs (half a gigabyte, or
# half of the memory) are read only on request, by `lotus report`.
_MOST_LOG, _MEMORY_PER_BYTE = 1 << 29, 20
_ASCII_BARS = {ord(part): "#" for part in "█▉▊▋▌"} | {ord(part): " " for part in "▍▎▏"}
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_VERDICT = re.compile(r"^([A-Z][A-Z ,-]+)(?=:)", re.MULTILINE)
_HEADING = re.compile(
    r"^(?:Where the .*|Why(?= \()|next step:|expected:|try it:|after that:|step \d,(?= for ))",
    re.MULTILINE,
)


def text(directory: Path, outcome: ProgramOutcome, next_command: str, full: bool = False) -> str:
    """Return the closing text of a run: a report (the short one unless `full`), lines, what next.

    An error in reading or reporting the run is a line too, never an exception: only the program's
    own exit code counts.
    """
    ended = outcome.exit_code, outcome.signal, outcome.memory_kills
    lines = missing_data.ending(*ended)
    failed = bool(outcome.exit_code or outcome.signal)
    report: str | None = ""
    if not directory.exists():
        lines.append(
            f"{directory} was removed while the program ran, so nothing of the run is left; choose "
            "another directory with -o"
        )
        return "\n".join(f"lotus: {line}" for line in lines)
    try:
        logs = [path.stat().st_size for path in (directory / "events").glob("*.ltr")]
        if sum(logs) > _most_log():
            lines.append(f"{sum(logs) / 1e9:.1f} GB were recorded: too much to report on here")
        else:
            report, reasons = _report(directory, full, sum(logs), len(lines), failed)
            if report is None:
                lines = missing_data.ending(*ended, recorded=False)
            lines += reasons
    except Exception as error:
        name = "" if isinstance(error, LotusError) else f"{type(error).__name__}: "
        lines.append(f"the run could not be read: {name}{error}")
    closing = [f"lotus: {line}" for line in lines]
    following = [] if report is None else [f"next: {next_command}"]
    return "\n".join([*([report.rstrip("\n")] if report else []), *closing, *following])


def _report(
    directory: Path, full: bool, size: int, said: int, failed: bool
) -> tuple[str | None, list[str]]:
    """Return the report, None if there is nothing to report on, and further lines.

    `said`: lines that come after the report anyway; `failed`: the program did not end well.
    """
    reports = missing_data.processes(directory)
    if not size:  # nothing that pandas would have to be imported for
        return None, missing_data.missing(reports, failed=failed)
    with progress(f"reading {size / 1e6:.0f} MB of events"):
        import pandas as pd

        from lotus.reading.run import load

        # Texts as Python's own: for a few rows, those of pyarrow take a sixth more time in all.
        with pd.option_context("mode.string_storage", "python"):
            run = load(directory)
            if not (len(run.batches) or len(run.epochs) or len(run.open_waits)):
                return None, missing_data.missing(reports, run.unseen, failed)
            # The report lists the loaders that could not be recorded.
            unfound = _unfound(run)
            return _words(run, full, said + len(unfound)), unfound


def _words(run: "Run", full: bool, said: int) -> str:
    if full:
        from lotus.reporters.run import terminal

        return terminal.report(run)
    from lotus.reporters.run import short_report  # it needs half as many modules

    return "\n".join(short_report.short_report(run, short_report.MOST_LINES - said))


def styled(words: str) -> str:
    """Return the text for stderr: on a terminal with coloured verdict and bold headings, and with
    bars of characters that it can display.
    """
    stream = sys.stderr
    try:
        "█▏".encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeError, LookupError):
        words = words.translate(_ASCII_BARS)
    if os.environ.get("NO_COLOR") or stream is None or not stream.isatty():
        return words
    words = _VERDICT.sub(lambda match: _verdict_code(match[1]) + match[1] + _PLAIN, words, count=1)
    return _HEADING.sub(lambda match: _BOLD + match[0] + _PLAIN, words)


def _verdict_code(words: str) -> str:
    colours = {"NOT INPUT-BOUND": "32", "MODERATELY INPUT-BOUND": "33", "NO VERDICT": "33"}
    return f"\x1b[1;{colours.get(words, '31')}m"


def _unfound(run: "Run") -> list[str]:
    requested = run.manifest.get("ops")
    if not isinstance(requested, list) or not requested:
        return []
    named = run.operations[run.operations["kind"] == "named"]["operation"]
    return missing_data.unfound([str(op) for op in requested], set(named), run.notes)


def _most_log() -> int:
    available = host.available_memory()
    return _MOST_LOG if available is None else min(_MOST_LOG, available // (2 * _MEMORY_PER_BYTE))
