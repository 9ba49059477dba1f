"""Tunes a program that it starts: the search runs here, the trials run inside the program.

`launcher.run` runs the program as usual, with its terminal and signals. A second thread listens to
the agent in the program (lotus/inside/tune/agent.py). When the agent has taken over, the thread
searches, requesting trials over two pipes. The result is written before the agent continues or
ends the program.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lotus.common.errors import LotusError
from lotus.common.storage import files
from lotus.common.terminal.stderr import say
from lotus.format.manifest import TraceSettings
from lotus.recording import launcher, program_environment
from lotus.recording.launcher import ProgramOutcome
from lotus.settings import tuned_file
from lotus.settings.space import Setting
from lotus.settings.tuned_file import Tuned
from lotus.tune.program.remote_program import watched_from
from lotus.tune.search.loop_length import NotWorthTuningError
from lotus.tune.session.program_pipe import HINTS, Hints, Pipe, PipedProgram, ProgramEndedError

_INTERRUPTED = 130


class Measured(Protocol):
    """The part of what was measured in a program that is used here."""

    @property
    def speedup(self) -> object:
        """The result; None: nothing was found."""

    @property
    def interrupted(self) -> bool:
        """True if Ctrl-C ended the measurement."""

    @property
    def failure(self) -> str:
        """The reason for which nothing could be found and nothing is written; "" otherwise."""


class SearchResult(Measured, Protocol):
    """The part of a search's result that is used here."""

    @property
    def best(self) -> Setting:
        """The setting that was found."""

    @property
    def iterable_safe(self) -> bool:
        """True if it keeps the samples of an iterable data set."""

    def tuned(self, command: Sequence[str]) -> Tuned:
        """Return the document to write."""


Search = Callable[[PipedProgram], SearchResult]
Measure = Callable[[PipedProgram], Measured]
Record = Callable[[Path, Sequence[str], Mapping[str, str]], TraceSettings | None]


@dataclass
class Tuning:
    """The outcome of tuning a program."""

    result: Any  # the search's result; None if there is none
    outcome: ProgramOutcome
    problem: str = ""  # why there is no result, or why it is incomplete
    ended_by_us: bool = False
    written: Path | None = None  # the file of the result
    unwritten: str = ""  # why the file differs from the requested one, or there is none

    @property
    def interrupted(self) -> bool:
        """True if Ctrl-C ended the program, in its own code or while it was measured."""
        ended_so = self.ended_by_us and self.outcome.exit_code == _INTERRUPTED
        return ended_so or self.outcome.signal == signal.SIGINT


def tune(
    command: Sequence[str],
    search: Search,
    *,
    output: Path,
    loader: int | str | None = None,
    watch: int | None = None,
    apply: bool = False,
    on_found: Callable[[Any, Path | None], object] | None = None,
    record: Record | None = None,
) -> Tuning:
    """Start a command and run `search` on its loader when the program iterates it.

    `loader` is the loader's number by first iteration, the name of its data set's class, or
    `file:line` where it is made; None chooses the one with the most samples. `watch` batches are
    watched first. `record` makes a run directory at a path, into which the trials are traced, and
    returns what to record.

    With `apply` the program continues with the best setting, else it is ended. The result is
    written to `output` or, if that fails, to a new temporary directory. Then `on_found` is called
    from another thread with the result and its file, or None if it could not be written.

    `search` may raise NotWorthTuningError to end without a result.

    Raises LotusError if the output cannot be written or the search is not possible (with `apply`
    only before the program has run), CommandStartError if the command cannot be started.
    """
    files.writable(output)
    fields = {"loader": loader, "watch": watch, "apply": apply}
    return _run(command, search, fields, output, on_found, record)


def measure(
    command: Sequence[str],
    experiment: Measure,
    *,
    loader: int | str | None = None,
    watch: int | None = None,
    choices: Mapping[str, Sequence[str]] | None = None,
    cache: Mapping[str, Any] | None = None,
    hints: Hints = HINTS,
) -> Tuning:
    """Start a command and call `experiment` when the program iterates its loader; then end it.

    The program trains on with data of one kind and another: see
    lotus/inside/tune/feeds/fed_training.py. `choices` names alternatives by kind; `cache` is a
    cache of samples as in an entry of settings. `hints` are added to reasons why it ended too
    early. The other arguments and errors are those of `tune`. Nothing is written.
    """
    fields = {
        "loader": loader,
        "watch": watch,
        "apply": False,
        "feed": True,
        "choices": choices,
        "cache": cache,
    }
    return _run(command, experiment, fields, hints=hints)


def _run(
    command: Sequence[str],
    search: Search | Measure,
    fields: Mapping[str, Any],
    output: Path | None = None,
    on_found: Callable[[Any, Path | None], object] | None = None,
    record: Record | None = None,
    hints: Hints = HINTS,
) -> Tuning:
    apply: bool = fields["apply"]
    words = launcher.resolve(command)
    exchange = Path(tempfile.mkdtemp(prefix="lotus-tune-"))
    try:
        for name in ("asks", "tells"):
            os.mkfifo(exchange / name, 0o600)
        (exchange / "switch").write_bytes(b"\0")
        request = {"exchange": str(exchange), **fields}
        environ: Mapping[str, str] = os.environ
        run, recording = None, {}
        if record is not None and "LOTUS_RUN" not in environ:
            traced = record(exchange / "run", command, environ)
            if traced is not None:
                run = exchange / "run"
                # Only trials are recorded: the program may run for a long time before and after.
                recording = program_environment.with_tracing({}, run, traced)
                del recording["PYTHONPATH"]
        environ = program_environment.with_tuning(
            environ, json.dumps({**request, "record": recording})
        )
        pipe = Pipe(exchange)
        beside = _Beside(pipe, search, command, output, apply, on_found, run, hints)
        try:
            beside.start()
            outcome = launcher.run(words, environ)
        finally:
            pipe.over.set()
            beside.join()
            pipe.close()
        if beside.error is None:
            return beside.tuning(outcome)
        if apply and isinstance(beside.error, LotusError):  # the program continued, and has ended
            return Tuning(None, outcome, str(beside.error))
        raise beside.error
    finally:
        shutil.rmtree(exchange, ignore_errors=True)


class _Beside(threading.Thread):
    """Listens to the program, searches, and tells the program how to go on."""

    def __init__(
        self,
        pipe: Pipe,
        search: Search | Measure,
        command: Sequence[str],
        output: Path | None,
        apply: bool,
        on_found: Callable[[Any, Path | None], object] | None,
        run: Path | None,
        hints: Hints,
    ) -> None:
        super().__init__(name="lotus-tune", daemon=True)
        self._pipe, self._search, self._command = pipe, search, command
        self._output, self._apply, self._on_found = output, apply, on_found
        self._run, self._hints = run, hints
        self.error: BaseException | None = None
        self._result: Any = None
        self._program: PipedProgram | None = None
        self._events: list[dict[str, Any]] = []
        self._last = ""
        self._failure = ""
        self._written: Path | None = None
        self._unwritten = ""

    def start(self) -> None:
        # The main thread receives signals and passes them on to the program.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def run(self) -> None:
        try:
            watched = self._watched()
            if watched is not None:
                self._tune(watched)
        except ProgramEndedError:
            pass
        except NotWorthTuningError as reason:
            self._failure = str(reason)
            self._finish({"do": "leave"} if self._apply else {"do": "end", "code": 0})
        except BaseException as error:
            self.error = error
            self._finish({"do": "leave"} if self._apply else {"do": "end", "code": 1})

    def _watched(self) -> dict[str, Any] | None:
        """Return the agent's description of the loader, once it has taken over."""
        while True:
            event = self._pipe.tell()
            if "watched" in event:
                return dict(event["watched"])
            if event not in self._events:
                self._events.append(event)
                if event.get("event") == "unmatched":
                    say(
                        "lotus: no loader iterated so far matches --loader; there were: "
                        f"{self._iterated()}"
                    )
            del self._events[50:-50]  # keep the first and the last, if there are many loaders
            if event.get("interrupted"):
                self._finish({"do": "leave"} if self._apply else {"do": "end", "code": 130})

    def _iterated(self) -> str:
        """Return the names of some loaders that the program has iterated."""
        named = [event for event in self._events if event.get("event") == "iterated"]
        more = f" and {len(named) - 3} more" if len(named) > 3 else ""
        return ", ".join(str(event.get("loader")) for event in named[:3]) + more

    def _tune(self, description: dict[str, Any]) -> None:
        watched = watched_from(description)
        self._pipe.follow(watched.pid)
        self._program = program = PipedProgram(watched, self._pipe, self._run, self._hints)
        result: Any = self._search(program)
        if program.problem and result.speedup is None:
            return  # nothing was found
        if result.failure:
            self._failure = result.failure
            code = _INTERRUPTED if program.interrupted else 1
            self._finish({"do": "leave"} if self._apply else {"do": "end", "code": code})
            return
        self._result = result
        self._write(self._result)
        if self._on_found is not None:
            self._on_found(result, self._written)
        if program.problem:
            return
        if not self._apply:
            code = _INTERRUPTED if program.interrupted else 0
            self._finish({"do": "end", "code": code})
        elif program.interrupted or result.best.normal() == watched.setting.normal():
            self._finish({"do": "leave"})
        else:
            facts = {
                "loader": {**dataclasses.asdict(watched.loader), "number": None},
                "setting": result.best.normal().as_json(),
                "iterable_safe": result.iterable_safe,
            }
            self._finish({"do": "apply", **facts})

    def _write(self, result: Any) -> None:
        """Write the result to the output file or, if that fails, to a temporary directory."""
        if self._output is None:
            return
        tuned: Tuned = result.tuned(self._command)
        try:
            tuned_file.write(self._output, tuned)
            self._written = self._output
        except LotusError as error:
            self._unwritten = str(error)
            with contextlib.suppress(LotusError, OSError):
                folder = Path(tempfile.mkdtemp(prefix="lotus-tuned-"))
                try:
                    tuned_file.write(folder / tuned_file.DEFAULT.name, tuned)
                    self._written = folder / tuned_file.DEFAULT.name
                except LotusError:
                    folder.rmdir()

    def _finish(self, what: dict[str, Any]) -> None:
        self._last = what["do"]
        with contextlib.suppress(ProgramEndedError, OSError):
            self._pipe.answer(what)

    def tuning(self, outcome: ProgramOutcome) -> Tuning:
        program = self._program
        problem = program.problem if program is not None else self._why_not(outcome)
        problem = problem or self._failure
        return Tuning(
            self._result,
            outcome,
            problem,
            ended_by_us=self._last == "end",
            written=self._written,
            unwritten=self._unwritten,
        )

    def _why_not(self, outcome: ProgramOutcome) -> str:
        """Return why the program ended before it could be tuned."""
        how = (
            f"exit code {outcome.exit_code}"
            if outcome.signal is None
            else f"signal {outcome.signal}"
        )
        events: dict[str, list[dict[str, Any]]] = {}
        for event in self._events:
            events.setdefault(str(event.get("event")), []).append(event)
        if "fault" in events:
            error = events["fault"][-1].get("error")
            return f"lotus failed inside the program: {error}{self._hints.fault}"
        before = f"the program ended ({how}) before"
        iterated = events.get("iterated", [])
        if "torch" not in events and (outcome.exit_code or outcome.signal is not None):
            return f"{before} it imported torch.utils.data: its own message says why"
        if "torch" not in events:
            return (
                f"{before} it imported torch.utils.data, as far as lotus saw: check that the "
                "command starts Python, without -I, -E and -S"
            )
        if not iterated:
            return f"{before} it iterated a DataLoader of torch, so there is no loader to tune"
        chosen = [str(event.get("loader")) for event in iterated if event.get("chosen")]
        if not chosen:
            return f"{before} it iterated the loader to tune; --loader can name {self._iterated()}"
        if "exhausted" in events:
            batches = events["exhausted"][-1].get("batches")
            return (
                f"{before} enough could be watched: {chosen[-1]} was exhausted after {batches} "
                "batch" + ("" if batches == 1 else "es")
            )
        taken = max((event.get("batches", 0) for event in events.get("watched", ())), default=0)
        short = f"{before} enough batches of {chosen[-1]} could be watched"
        if not taken or outcome.signal is not None or outcome.exit_code == 1:
            return short  # it failed, or requested only one batch
        return short + self._hints.few.format(batches=taken)
