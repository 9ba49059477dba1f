"""Prints the progress lines of `lotus trace --live` to stderr while the program runs.

The terminal belongs to the program. So nothing is redrawn and no terminal mode is changed or
queried. Whole lines are added every ten seconds and when something hangs, if they do no harm.
Elsewhere than on a terminal there is one line per minute.

A line must begin at the left edge without overwriting what the program has begun there (a progress
bar, a prompt). As many spaces as the terminal is wide move the cursor to the next line, unless it
was at the left edge, where it then returns. zsh uses the same method.

A separate thread reads and writes; waiting for the program's end never waits for this thread.
"""

import contextlib
import os
import shlex
import sys
import termios
import threading
from pathlib import Path

from lotus.common.terminal.stderr import say

_EVERY_S, _EVERY_ELSEWHERE_S = 10.0, 60.0
_LOOK_S = 2.0  # a stop is reported at most this long after it is known
_PATIENCE_S = 0.1  # for a line that is being written as the program ends, and for the thread


class Ticker:
    """A context around waiting for the program."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ended = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="lotus-live", daemon=True)

    def __enter__(self) -> "Ticker":
        with contextlib.suppress(RuntimeError):  # no thread can be started: the program comes first
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        # A terminal that is stopped (Ctrl-S) would block us.
        if self._writing.acquire(timeout=_PATIENCE_S):
            self._writing.release()
        if self._thread.ident is not None:
            self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        with contextlib.suppress(Exception):  # an error here may lose the lines, never the run
            self._tell()

    def _tell(self) -> None:
        from lotus.live.follower import Watch
        from lotus.reporters.live import top_report

        where = shlex.quote(str(self._directory))
        self._say(f"lotus: recording into {where}; lotus top {where} shows more")
        watch = Watch(self._directory)
        every = _EVERY_S if _is_terminal() else _EVERY_ELSEWHERE_S
        passed, taken, told_bad = 0.0, 0, False
        while not self._ended.wait(_LOOK_S):
            view = watch.look()
            passed += _LOOK_S
            verdict = view.verdict
            bad = verdict is not None and verdict.bad and view.state == "running"
            now_taken = sum(group.taken for group in view.groups)
            # Repeat only if it moves: do not disturb a program that waits for its user.
            due = passed >= every and now_taken != taken
            if not (due and not bad) and not (bad and not told_bad):
                told_bad = told_bad and bad
                continue
            text = top_report.status(view, _width() - 1 if _is_terminal() else None)
            if text and bad and verdict is not None:
                text = "\n".join(
                    [text, *(f"lotus: next: {command}" for command in verdict.commands[:1])]
                )
            if text and self._say(text):
                passed, taken, told_bad = 0.0, now_taken, bad

    def _say(self, text: str) -> bool:
        """Write whole lines if that does no harm now; return whether it did."""
        start = ""
        if _is_terminal():
            if not _is_ours():
                return False
            start = " " * _width() + "\r"
        with self._writing:
            if self._ended.is_set():
                return False
            say(text, start)
        return True


def _is_terminal() -> bool:
    try:
        return os.isatty(2) and sys.stderr is not None
    except OSError:
        return False


def _width() -> int:
    try:
        return os.get_terminal_size(2).columns or 80
    except OSError:
        return 80


def _is_ours() -> bool:
    """Return whether a line does no harm: not in an editor, at a prompt, or elsewhere."""
    try:
        # Local modes: a program that takes keys one by one draws its screen itself.
        by_lines = termios.tcgetattr(2)[3] & termios.ICANON
        # A write from the background may stop us, and then nobody would wait for the program.
        return bool(by_lines) and os.tcgetpgrp(2) == os.getpgrp()
    except (OSError, termios.error):
        return False
