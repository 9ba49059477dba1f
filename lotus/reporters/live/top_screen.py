"""The screen of `lotus top`, and its single snapshot."""

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from lotus.common.errors import LotusError
from lotus.common.storage import files
from lotus.format import run_claim
from lotus.live import stack_dump
from lotus.live.follower import Watch
from lotus.live.hang_detection import BAD
from lotus.live.tailing import manifest_of
from lotus.live.view import View
from lotus.reporters.live import top_report

_BETWEEN_S = 0.5  # between the two readings of a snapshot: CPU time is a difference
_MOST_STACKS = 16  # processes, in a snapshot
_STACKS_EVERY_S, _STACKS_AT_ONCE = 5.0, 4


def once(directory: Path, as_json: bool = False, with_stacks: bool = False) -> None:
    """Print the current state of a run. Raises LotusError without a run."""
    watch = Watch(directory)
    view = watch.look()
    if view.state == "absent":
        raise LotusError(
            f"{directory} is not a run (yet): lotus trace -o {directory} -- COMMAND makes it one"
        )
    while watch.behind or (view.state == "running" and not _has_cpu(view)):
        if not watch.behind:
            time.sleep(_BETWEEN_S)
        view = watch.look()
    if with_stacks:
        _check_whose(directory)
    stacks = stack_dump.dump(processes(view)[:_MOST_STACKS]) if with_stacks else None
    run = str(directory)
    if as_json:
        print(files.json_text(top_report.document(view, run=run, stacks=stacks)))
        return
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
    width = os.get_terminal_size(1).columns if sys.stdout.isatty() else 100
    lines = top_report.lines(view, run, width, None, stacks)
    if sys.stdout.isatty():
        from rich.console import Console

        _print(Console(highlight=False), lines)
    else:
        print(top_report.text(lines), end="")


def _check_whose(directory: Path) -> None:
    """Raise LotusError for another user's run, whose pids may be those of any of our processes."""
    manifest = manifest_of(directory)
    if manifest is not None and not run_claim.is_ours(directory, manifest):
        raise LotusError(
            f"{directory} was recorded by another user, elsewhere, or by an earlier lotus, and no "
            "program is run on what it names; leave out --stacks"
        )


def _has_cpu(view: View) -> bool:
    """Return True if the CPU time of a living process is known, which takes two readings."""
    mains = [group.main for group in view.groups if group.main.alive]
    return not mains or any(main.cpu == main.cpu for main in mains)


def processes(view: View) -> list[int]:
    """Return the pids of the living processes, most relevant first."""
    if view.state != "running":
        return []
    pids = []
    for group in sorted(view.groups, key=lambda group: group.verdict is not view.verdict):
        verdict = group.verdict
        alive = [process for process in (group.main, *group.workers) if process.alive]
        alive.sort(
            key=lambda process: (
                process.pid != verdict.pid,
                process.worker >= 0,
                process.phase == "idle",
            )
        )
        pids += [process.pid for process in alive]
    return pids


class Quit(BaseException):
    """The user has quit."""


def follow(directory: Path, interval: float, with_stacks: bool) -> None:
    """Show a run on the terminal until the user ends it with q or Ctrl-C."""
    watch = Watch(directory)
    watch.look()  # report an invalid directory before using the screen
    if with_stacks:
        _check_whose(directory)
    dumps = _Dumps() if with_stacks else None
    last: list[View] = []
    with contextlib.suppress(Quit, KeyboardInterrupt), _ended_cleanly():
        while True:
            with _terminal() as live:
                _redraw(live, watch, directory, interval, dumps, last)
            os.kill(os.getpid(), signal.SIGSTOP)  # Ctrl-Z, with the terminal as it was
    # The screen is gone, and with it the command to type next.
    for view in last:
        verdict = view.verdict
        if view.state in ("ended", "killed") or (verdict is not None and verdict.bad):
            width = os.get_terminal_size(1).columns or 80
            print(top_report.text(top_report.head(view, str(directory), width)), end="")


def _redraw(
    live: Any,
    watch: Watch,
    directory: Path,
    interval: float,
    dumps: "_Dumps | None",
    last: list[View],
) -> None:
    """Draw until Ctrl-Z; the latest view is in `last`. Raises Quit."""
    from rich.console import Group

    suspended = threading.Event()
    before = signal.signal(signal.SIGTSTP, lambda *_: suspended.set())
    try:
        due = time.monotonic()
        while not suspended.is_set():
            last[:] = [view := watch.look()]
            stacks = dumps.of(view) if dumps is not None else None
            width, height = live.console.size
            lines = top_report.lines(view, str(directory), width, height - 2, stacks)
            if watch.behind:
                lines.insert(
                    0,
                    top_report.ScreenLine(
                        f"reading what was recorded: {watch.behind:,} bytes left"
                    ),
                )
            lines.append(top_report.ScreenLine("q ends this; the run goes on", "dim"))
            live.update(Group(*[_text(line, True) for line in lines]), refresh=True)
            due = max(due + interval, time.monotonic())
            if not watch.behind:
                _wait(due, suspended)
    finally:
        signal.signal(signal.SIGTSTP, before)


def _wait(due: float, suspended: threading.Event) -> None:
    """Wait until the next update or a key."""
    while not suspended.is_set() and (left := due - time.monotonic()) > 0:
        if not sys.stdin.isatty():
            time.sleep(min(left, 0.5))
        elif select.select([sys.stdin], [], [], min(left, 0.5))[0]:
            keys = os.read(sys.stdin.fileno(), 64)
            if not keys or b"q" in keys.lower():
                raise Quit


@contextlib.contextmanager
def _terminal() -> Iterator[Any]:
    """Use the alternate screen and read single keys; restores the terminal in any case."""
    from rich.console import Console
    from rich.live import Live

    keys = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    modes = termios.tcgetattr(keys) if keys is not None else None
    try:
        if keys is not None:
            tty.setcbreak(keys)
        console = Console(highlight=False)
        with Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False) as live:
            yield live
    finally:
        if keys is not None and modes is not None:
            termios.tcsetattr(keys, termios.TCSADRAIN, modes)


@contextlib.contextmanager
def _ended_cleanly() -> Iterator[None]:
    """Restore the terminal on SIGTERM and SIGHUP as well."""

    def quit_(number: int, frame: FrameType | None) -> None:
        raise Quit

    before = {name: signal.signal(name, quit_) for name in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _text(line: top_report.ScreenLine, cut: bool) -> Any:
    from rich.text import Text

    return Text(line.text, style=line.style, no_wrap=True, overflow="ellipsis" if cut else "ignore")


def _print(console: Any, lines: list[top_report.ScreenLine]) -> None:
    for line in lines:
        console.print(_text(line, False), soft_wrap=True)


class _Dumps:
    """Stacks of the most relevant processes, read in a thread every few seconds."""

    def __init__(self) -> None:
        self._stacks: dict[int, list[str]] = {}
        self._thread: threading.Thread | None = None
        self._due = 0.0

    def of(self, view: View) -> dict[int, list[str]]:
        """Return the latest stacks."""
        if time.monotonic() >= self._due and (self._thread is None or not self._thread.is_alive()):
            self._due = time.monotonic() + _STACKS_EVERY_S
            pids = processes(view)
            if view.verdict is None or view.verdict.kind not in BAD:
                pids = pids[:_STACKS_AT_ONCE]
            chosen = pids[: _MOST_STACKS if len(pids) <= _MOST_STACKS else _STACKS_AT_ONCE]
            self._thread = threading.Thread(target=self._take, args=(chosen,), daemon=True)
            self._thread.start()
        return self._stacks

    def _take(self, pids: list[int]) -> None:
        self._stacks = stack_dump.dump(pids)
