"""Progress of a sweep on stderr: which run of how many, its rate, the remaining time."""

import math
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from lotus.common.terminal.stderr import say
from lotus.common.text import redaction
from lotus.common.text.formatting import amount, command, duration, plain, plural, shorten
from lotus.settings.space import Setting
from lotus.sweep.sweep_record import Sweep
from lotus.sweep.sweep_runner import Made, Progress, Swept
from lotus.sweep.sweep_summary import SweepSummary, label

_MOST_LOST = 5


class LiveProgress(Progress):
    """Reports each run when it ends; on a terminal, also the current one."""

    def __init__(self, terminal: bool, varied: tuple[str, ...] = ()) -> None:
        self._terminal, self._varied = terminal, varied
        self._now, self._left_s = "", math.nan

    def lost(self, directories: Sequence[str]) -> None:
        listed = ", ".join(directories[:_MOST_LOST])
        if len(directories) > _MOST_LOST:
            listed += f" and {len(directories) - _MOST_LOST} more"
        runs = plural(len(directories), "run")
        say(f"lotus: {runs} can no longer be read and will be made again: {plain(listed)}")

    def began(self, number: int, whole: int, setting: Setting, repeat: int) -> None:
        self._now = f"{number} of {whole}: {label(setting, self._varied)}, round {repeat + 1}"
        self._show(self._now)

    def running(self, elapsed_s: float) -> None:
        remaining = (
            "" if math.isnan(self._left_s) else f", about {_time(self._left_s - elapsed_s)} left"
        )
        self._show(f"{self._now}, for {_time(elapsed_s)}{remaining}")

    def ended(self, made: Made) -> None:
        self._show("")
        self._left_s = made.left_s
        message = f"lotus: {made.number} of {made.whole}: {label(made.setting, self._varied)}, "
        message += f"round {made.repeat + 1}: "
        if made.state == "done":
            left = "" if not made.left_s > 0 else f"; about {_time(made.left_s)} left"
            say(f"{message}{amount(made.samples_per_s)} samples/s, {_time(made.elapsed_s)}{left}")
        else:
            say(f"{message}failed: {plain(made.problem)}")
            if made.last_lines:
                say(f"lotus: the last lines of {plain(made.log)}:")
            for line in made.last_lines:
                say("  " + plain(shorten(line, 200)))
        for note in made.notes:
            say(f"lotus: {plain(note)}")

    def _show(self, text: str) -> None:
        if self._terminal and sys.stderr is not None:
            # One line that is overwritten; say() would end the line.
            width = shutil.get_terminal_size().columns
            sys.stderr.write("\r\x1b[K" + shorten(text, max(width - 1, 20)))
            sys.stderr.flush()


def intend(sweep: Sweep) -> None:
    """Print what the sweep will do."""
    waiting = int((sweep.runs["state"] != "done").sum())
    planned = len(sweep.runs)
    settings, again = plural(len(sweep.settings()), "setting"), sweep.manifest.get("plan") or {}
    message = f"{settings}, {plural(again.get('repeat', 1), 'round')}: {plural(planned, 'run')}"
    if waiting < planned:
        message += f", of which {planned - waiting} are done"
    words = command(redaction.command([str(word) for word in sweep.manifest.get("command") or ()]))
    say(f"lotus: {message} into {plain(sweep.path)}, of: {words}")
    for note in sweep.manifest.get("notes") or []:
        say(f"lotus: {plain(note)}")


def conclude(summary: SweepSummary) -> None:
    """Print the result of the sweep, and what to type next."""
    from lotus.reporters.sweep.sweep_report import sentences

    for text in sentences(summary):
        say(text)
    path = command([summary.path])
    say(f"next: lotus report {path} --html {path}.html")


def stopped(path: Path, in_a_run: bool = False) -> None:
    """Say how a sweep that a signal stopped, between two runs or in one, is continued."""
    unfinished = ", the unfinished run does not count" if in_a_run else ""
    # What ends the line on which a terminal shows ^C.
    line = "\n" if sys.stderr is not None and sys.stderr.isatty() else ""
    say(f"lotus: stopped{unfinished}; continue with: {_again(path)}", line)


def list_failures(swept: Swept) -> None:
    """Say how many runs failed, and which of them can be repeated; nothing if none did."""
    count = len(swept.sweep.manifest["runs"])
    if swept.failed:
        again = _again(swept.sweep.path)
        say(f"lotus: {swept.failed} of {count} runs failed; repeat them with: {again}")
    if swept.refused:
        say(
            f"lotus: {swept.refused} of {count} runs cannot succeed, as the loader refuses their "
            "setting (see above)"
        )


def _again(path: Path) -> str:
    return f"lotus sweep --resume {shlex.quote(str(path))}"


def _time(seconds: float) -> str:
    """Format seconds; a minute and more as minutes, so that what is left reads alike throughout."""
    seconds = max(seconds, 0.0)
    if not 59.5 <= seconds < 600:
        return duration(seconds * 1e9)
    return "{} min {:02} s".format(*divmod(round(seconds), 60))
