"""Runs and traces a program once per loader setting and repeat, in the directory of a sweep.

Every repeat is a round in which each setting runs once, in random order, so that drift during a
sweep (heat, other work on the machine, the page cache) affects all settings alike. sweep.json is
written before the first run and after each, so that a sweep can be stopped and resumed.

Each run is a separate process, like `lotus trace`, and independent of this process.
lotus/inside/apply/settings_applier.py applies the settings inside the program.
"""

import contextlib
import fcntl
import itertools
import json
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotus.common.errors import LotusError
from lotus.common.text.formatting import signal_name
from lotus.format import run_directory
from lotus.format.manifest import TraceSettings
from lotus.recording import launcher, program_environment, traced_command
from lotus.settings.space import Setting
from lotus.sweep.sweep_plan import WITHOUT_WORKERS

if TYPE_CHECKING:  # pandas; the process of a run needs none
    from lotus.sweep.sweep_record import Sweep

LOG = ".log"
_TAKEN = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD}
_LOOK_S = 1.0  # interval of progress reports
# The process of a run imports the same modules as this one, regardless of the working directory.
_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from lotus.sweep.sweep_runner import child; "
    "sys.exit(child(sys.argv[2], int(sys.argv[3]), sys.argv[4:]))"
)
_KEPT = "keeps its own settings"  # as in lotus/inside/apply/settings_applier.py
_NO_EFFECT = "the setting did not take effect"
_SAFE = "; where they do not, sweep with --iterable-safe"
_TAIL = 1 << 16  # bytes of a log that are read for its last lines


@dataclass(frozen=True)
class Made:
    """One run that has ended, for progress reports."""

    number: int  # from 1
    whole: int
    setting: Setting
    repeat: int
    state: str  # "done", "failed"
    problem: str  # why it failed
    last_lines: tuple[str, ...]  # of the output of a run that failed
    notes: tuple[str, ...]
    log: Path
    elapsed_s: float
    samples_per_s: float  # NaN if it failed
    left_s: float  # expected time of the remaining runs, NaN: not known


class Progress:
    """Receives the progress of a sweep; this base class ignores it."""

    def lost(self, directories: Sequence[str]) -> None:
        """Called if completed runs can no longer be read and will be repeated."""

    def began(self, number: int, whole: int, setting: Setting, repeat: int) -> None:
        """Called when a run starts."""

    def running(self, elapsed_s: float) -> None:
        """Called about once a second while a run continues."""

    def ended(self, made: Made) -> None:
        """Called when a run has ended."""


@dataclass
class Swept:
    """The outcome of running or resuming a sweep."""

    sweep: "Sweep"
    signal: int | None = None  # that stopped it

    @property
    def refused(self) -> int:
        """Number of runs that cannot succeed, as the loader refuses their setting."""
        return sum(run.get("refused") is True for run in self.sweep.manifest["runs"])

    @property
    def failed(self) -> int:
        """Number of the other runs that failed."""
        return (
            sum(int(run["state"] == "failed") for run in self.sweep.manifest["runs"]) - self.refused
        )


def run(
    path: Path, command: Sequence[str], progress: Progress | None = None, show_output: bool = False
) -> Swept:
    """Make the runs of a sweep that are not done, including those that failed.

    Stops at a signal; the interrupted run is made again when the sweep is resumed. Raises
    LotusError.
    """
    from lotus.sweep import sweep_record as sweep

    progress = progress or Progress()
    with _alone(path):
        recorded = sweep.load(path)
        own_cwd, cwd = os.getcwd(), recorded.manifest.get("cwd")
        if cwd is not None and own_cwd != cwd:
            raise LotusError(
                f"the sweep began in another working directory; first: cd {shlex.quote(str(cwd))}"
            )
        manifest: dict[str, Any] = {**recorded.manifest, "state": "running"}
        runs = manifest["runs"]
        for record in runs:
            if record["state"] == "failed":
                record.update(state="pending", refused=False)
        lost = [run for run in runs if run["state"] == "done" and not _readable(path, run)]
        for record in lost:
            record.update(state="pending")
            _set_aside(path / record["directory"])
        if lost:
            progress.lost([run["directory"] for run in lost])
        stopped = None
        waiting = [number for number, run in enumerate(runs) if run["state"] == "pending"]
        for number in waiting:
            if runs[number]["state"] != "pending":  # refused with another round
                continue
            setting = recorded.settings()[runs[number]["setting"]]
            progress.began(number + 1, len(runs), setting, runs[number]["repeat"])
            stopped = _run_setting(path, manifest, number, setting, command, progress, show_output)
            if stopped is not None:
                break
        manifest["state"] = "ended" if stopped is None else "stopped"
        sweep.write(path, manifest)
    return Swept(sweep.load(path), stopped)


def _readable(path: Path, record: Mapping[str, Any]) -> bool:
    """Return True if the directory of a run exists, with its manifest and logs."""
    from lotus.reading import run as runs

    where = path / record["directory"]
    try:
        runs.load(where)
        return any(name.endswith(".ltr") for name in os.listdir(where / "events"))
    except (LotusError, OSError):
        return False


def _set_aside(where: Path) -> None:
    """Rename whatever is at the path of a run but is not a run, in case the user needs it."""
    if not os.path.lexists(where) or run_directory.is_run(where):
        return
    for number in itertools.count():
        renamed = where.with_name(f"{where.name}.unreadable" + (f"-{number}" if number else ""))
        if not os.path.lexists(renamed):
            break
    try:
        where.rename(renamed)
    except OSError as error:
        raise LotusError(
            f"cannot move {where} aside: {error.strerror}; remove it, then go on with: "
            "lotus sweep --resume SWEEP"
        ) from None


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Lock the sweep's directory. Raises LotusError if another `lotus sweep` holds the lock."""
    try:
        lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise LotusError(f"cannot write to {path}: {error.strerror}; see: ls -ld {path}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LotusError(f"another lotus sweep is at work in {path}; wait for it") from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(lock)


def _run_setting(
    path: Path,
    manifest: dict[str, Any],
    number: int,
    setting: Setting,
    command: Sequence[str],
    progress: Progress,
    show_output: bool,
) -> int | None:
    """Make one run and record its outcome; returns the signal that stopped the sweep, if any."""
    from lotus.sweep import sweep_record as sweep

    record = manifest["runs"][number]
    where = path / record["directory"]
    where.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    sweep.write(path, manifest)  # the process of the run reads it
    log = where.with_name(where.name + LOG)
    with tempfile.TemporaryDirectory(prefix="lotus-sweep-") as folder:
        messages = Path(folder) / "said"
        messages.touch(0o600)
        environ = program_environment.with_settings(
            os.environ, _setting_request(manifest, setting, messages)
        )
        words = [sys.executable, "-c", _CHILD, json.dumps(sys.path)]
        begin_ns = time.monotonic_ns()
        status, usage, stopped = _wait(
            [*words, str(path.absolute() / sweep.NAME), str(number), *command],
            environ,
            None if show_output else log,
            progress,
        )
        elapsed_ns = time.monotonic_ns() - begin_ns
        refused = _refused(messages)
    if stopped is not None:
        sweep.write(path, manifest)
        return stopped
    code = os.waitstatus_to_exitcode(status)
    record.update(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        elapsed_ns=elapsed_ns,
        cpu_s=usage.ru_utime + usage.ru_stime,
    )
    problem = _how(code)
    notes: list[str] = []
    rate, hopeless = float("nan"), False
    if not problem:
        rate, problem, facts = _looked_at(where, manifest, setting, refused)
        hopeless = problem.startswith(_NO_EFFECT) and any(_KEPT in note for note in refused)
        notes = [] if problem else refused
        manifest["torch"] = manifest.get("torch") or facts.get("torch")
    record.update(state="failed" if problem else "done", problem=problem or None)
    if hopeless:
        notes.append(_give_up(manifest["runs"], record))
    sweep.write(path, manifest)
    lines = () if not problem or show_output else last_lines(log)
    progress.ended(
        Made(
            number + 1, len(manifest["runs"]), setting, record["repeat"], record["state"], problem,
            lines, tuple(notes), log, elapsed_ns / 1e9, rate, _left(manifest["runs"]),
        )
    )  # fmt: skip
    return None


def _give_up(runs: Sequence[dict[str, Any]], record: dict[str, Any]) -> str:
    """Remove all rounds of a refused setting from the sweep; returns a message."""
    record["refused"] = True
    outcome = {"state": "failed", "problem": record["problem"], "refused": True}
    pending_runs = [
        run for run in runs if run["setting"] == record["setting"] and run["state"] == "pending"
    ]
    for other in pending_runs:
        other.update(outcome, exit_code=None, signal=None, elapsed_ns=None, cpu_s=None)
    if not pending_runs:
        return "this setting cannot succeed in this sweep"
    rounds = "round is" if len(pending_runs) == 1 else f"{len(pending_runs)} rounds are"
    return f"this setting cannot succeed in this sweep: its other {rounds} not made"


def _setting_request(manifest: Mapping[str, Any], setting: Setting, messages: Path) -> str:
    """Return the JSON request to lotus/inside/apply/settings_applier.py."""
    plan = manifest["plan"]
    names = [name for name in plan["varied"] if getattr(setting, name) is not None]
    if not setting.num_workers:
        names = [name for name in names if name in WITHOUT_WORKERS]
    entry = {
        "loader": plan["loader"] or {"every": True},
        "setting": {name: getattr(setting, name) for name in names},
        "iterable_safe": plan["iterable_safe"],
        "keep": True,
    }
    return json.dumps({"loaders": [entry], "torch": None, "said": str(messages)})


def _wait(
    words: list[str], environ: Mapping[str, str], log: Path | None, progress: Progress
) -> tuple[int, Any, int | None]:
    """Run a process to its end with its output in `log`; returns (status, resource usage with all
    children, a signal that this process received and passed on, or None)."""
    actions = []
    if log is not None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        actions = [(os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600), (os.POSIX_SPAWN_DUP2, 1, 2)]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # An ignored signal (nohup, a shell's background job) is ignored by the program too.
    watched = {number for number in _TAKEN if signal.getsignal(number) != signal.SIG_IGN}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        begin, stopped = time.monotonic(), None
        try:
            pid = os.posix_spawn(words[0], words, environ, file_actions=actions, setsigmask=before)
        except OSError as error:
            raise LotusError(f"a run cannot be started: {error.strerror} ({log})") from None
        while True:
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if ended:
                break
            received = signal.sigtimedwait(watched, _LOOK_S)
            if received is None:
                progress.running(time.monotonic() - begin)
            elif received.si_signo != signal.SIGCHLD:
                stopped = received.si_signo
                # A signal from the terminal has reached the program too (see
                # lotus/recording/launcher.py).
                if received.si_code <= 0 or received.si_signo == signal.SIGHUP:
                    os.kill(pid, received.si_signo)
        while (late := signal.sigtimedwait(watched, 0)) is not None:
            if late.si_signo != signal.SIGCHLD:
                stopped = stopped or late.si_signo
        return status, usage, stopped
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def child(path: str, number: int, command: Sequence[str]) -> int:
    """Trace the command of one run into its directory, then end the process as the command ended.

    This is the program of a run's process. `path` is the sweep's manifest, `number` the index of
    the run in it.
    """
    manifest = json.loads(Path(path).read_bytes())
    plan = manifest["plan"]
    where = Path(path).parent / manifest["runs"][number]["directory"]
    recorders: list[Any] = []
    if plan["perf"]:
        from lotus.recording import measurement_plan

        recorders = measurement_plan.plan(None, perf=True).recorders
    settings = TraceSettings(
        manifest["level"],
        plan["batches"],
        counters=manifest["counters"],
        cpu=manifest["cpu_events"],
    )
    try:
        _, outcome = traced_command.trace(command, where, settings, True, recorders)
    except LotusError as error:
        print(f"lotus: {error}", file=sys.stderr)
        return error.exit_code
    return launcher.end_as(outcome)


def _how(code: int) -> str:
    """Return why a process failed; "" if it did not."""
    if code < 0:
        return f"ended by {signal_name(-code)}"
    return f"exit code {code}" if code else ""


def _refused(messages: Path) -> list[str]:
    """Return notes on loaders that kept their own settings."""
    notes = []
    with contextlib.suppress(OSError):
        for line in messages.read_bytes()[: 1 << 20].splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                fact = json.loads(line)
                text = str(fact.get("note", "")) if isinstance(fact, dict) else ""
                if "its own settings" in text or "not applied" in text:
                    notes.append(text[:1000] + (_SAFE if "data set is iterable" in text else ""))
    return notes


def _looked_at(
    where: Path, manifest: Mapping[str, Any], setting: Setting, refused: Sequence[str]
) -> tuple[float, str, dict[str, Any]]:
    """Return (samples/s, why the run does not count or "", facts) of a run that succeeded."""
    from lotus.analysis.common.remade_loaders import merged
    from lotus.reading import run as runs
    from lotus.sweep import run_numbers as analysis

    try:
        recorded = runs.load(where)
        whole = merged(recorded)
        loader = analysis.chosen(whole, manifest["plan"]["loader"])
        if loader is None:
            return float("nan"), analysis.missing(whole, manifest["plan"]["loader"]), {}
        torch = next(iter(recorded.processes["torch"].dropna()), None)
        other = analysis.not_as_set(whole, loader, setting, manifest["varied"])
    except LotusError as error:
        return float("nan"), f"the run cannot be read: {error}", {}
    if other:
        why = f": {refused[0]}" if refused else ""
        return float("nan"), f"{_NO_EFFECT}, {other}{why}", {"torch": torch}
    return analysis.rate(whole, loader), "", {"torch": torch}


def last_lines(log: Path, count: int = 8) -> tuple[str, ...]:
    """Return the last non-empty lines of a run's output."""
    try:
        with log.open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _TAIL, 0))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple([line.rstrip() for line in text.splitlines() if line.strip()][-count:])


def _left(runs: Sequence[Mapping[str, Any]]) -> float:
    """Return the expected time of the remaining runs, from other runs of their settings."""
    durations: dict[int, list[float]] = {}
    for record in runs:
        if record["state"] == "done" and isinstance(record.get("elapsed_ns"), int):
            durations.setdefault(record["setting"], []).append(record["elapsed_ns"] / 1e9)
    all_durations = [seconds for some in durations.values() for seconds in some]
    if not all_durations:
        return float("nan")
    mean = sum(all_durations) / len(all_durations)
    waiting = [durations.get(run["setting"], [mean]) for run in runs if run["state"] == "pending"]
    return sum(sum(some) / len(some) for some in waiting)
