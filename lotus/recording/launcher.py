"""Starts a program, passes signals on to it, and ends as it ended.

The program keeps lotus's standard streams, terminal, process group and working directory: nothing
is piped, and lotus does not come between it and its terminal. lotus waits beside it. If recorders
run beside it (recorders.py), the program is held until they are attached.

A signal to the whole process group (`timeout`, a shell's `kill %1`) looks like a signal to lotus
alone, so the program gets it twice. Signals from the terminal can be distinguished.
"""

import contextlib
import errno
import os
import resource
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NoReturn

from lotus.common.errors import LotusError
from lotus.recording.recorders import Recorders

# Forwarded where a process sent them to lotus alone.
_FORWARDED = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
}
_TAKEN = _FORWARDED | {signal.SIGCHLD}


class CommandStartError(LotusError):
    """The command cannot be started; `exit_code` is what a shell would return."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class ProgramOutcome:
    """The end of a program: an exit code, or a signal (the other one is None)."""

    exit_code: int | None
    signal: int | None
    end_ns: int
    memory_kills: int | None = None  # see manifest.end


def resolve(command: Sequence[str]) -> list[str]:
    """Return the words to execute: `-m`, `-c` and plain .py files run under PATH's python.

    Raises CommandStartError where there is no such command.
    """
    words = list(command)
    if words[0] in ("-m", "-c") or _needs_python(words[0]):
        python = shutil.which("python") or shutil.which("python3") or sys.executable
        return [python, *words]
    if shutil.which(words[0]) is None:
        raise _cannot_start(words)
    return words


def _needs_python(name: str) -> bool:
    """Return True if this is a Python file that the system would not run by itself."""
    if not name.endswith(".py") or not os.path.isfile(name):
        return False
    if shutil.which(name) is None:
        return True
    try:
        with open(name, "rb") as file:
            return file.read(2) != b"#!"
    except OSError:
        return False


def _cannot_start(words: Sequence[str]) -> CommandStartError:
    name = words[0]
    if os.path.isdir(name):
        return CommandStartError(f"{name} is a directory, not a command; name a program in it", 126)
    if os.path.dirname(name) and os.path.exists(name):
        return CommandStartError(
            f"{name} is not executable; chmod +x it or name its interpreter", 126
        )
    if name.endswith(".py"):
        return CommandStartError(
            f"there is no file {name} in {os.getcwd()}; give the script's path: "
            f"-- python {shlex.join(['PATH/' + os.path.basename(name), *words[1:]])}",
            127,
        )
    return CommandStartError(
        f"{name}: command not found; the shell's aliases are not known here", 127
    )


def run(
    words: Sequence[str],
    environ: Mapping[str, str],
    beside: Recorders | None = None,
    meanwhile: AbstractContextManager[object] | None = None,
) -> ProgramOutcome:
    """Run a program to its end with lotus's own streams and terminal; pass signals on to it.

    `meanwhile` is entered once it runs, and left as soon as it has ended.
    """
    # Inherited as ignored, it would make the kernel forget how the program ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _TAKEN)
    try:
        try:
            pid = _spawn(words, environ, before, beside)
            with meanwhile or contextlib.nullcontext():
                outcome = _wait(pid, beside)
            # What the terminal sent to both while the program ended was meant for it.
            _forget_signals()
            return outcome
        finally:
            if beside is not None:
                beside.stop()
                _forget_signals()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _forget_signals() -> None:
    while signal.sigtimedwait(_TAKEN, 0) is not None:
        pass


def _spawn(
    words: Sequence[str],
    environ: Mapping[str, str],
    mask: set[int | signal.Signals],
    beside: Recorders | None,
) -> int:
    try:
        if beside is not None:
            return _start_held(words, environ, mask, beside)
        return _posix_spawn(words, environ, mask)
    except FileNotFoundError:
        path = shutil.which(words[0])
        if path is None:
            raise _cannot_start(words) from None
        raise CommandStartError(
            f"{path}: the interpreter in its first line is missing", 126
        ) from None
    except OSError as error:
        raise CommandStartError(f"{words[0]} cannot be started: {error.strerror}", 126) from None


def _posix_spawn(
    words: Sequence[str], environ: Mapping[str, str], mask: set[int | signal.Signals]
) -> int:
    def spawn(words: list[str]) -> int:
        return os.posix_spawnp(
            words[0],
            words,
            environ,
            setsigmask=mask,
            # Python ignores these two; the program must find them as it would without us.
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )

    try:
        return spawn(list(words))
    except OSError as error:
        return spawn(_for_the_shell(words, error))


def _for_the_shell(words: Sequence[str], error: OSError) -> list[str]:
    """Return how every shell runs a script whose first line names no interpreter.

    Raises the error where that was not its reason.
    """
    path = shutil.which(words[0])
    if error.errno != errno.ENOEXEC or path is None or _is_binary(path):
        raise error
    return ["/bin/sh", path, *words[1:]]


def _start_held(
    words: Sequence[str],
    environ: Mapping[str, str],
    mask: set[int | signal.Signals],
    beside: Recorders,
) -> int:
    """Start a process that becomes the program once the recorders are attached to it.

    A stopped process would tell its parents and its terminal; this one reads a pipe. Where lotus
    is killed meanwhile the pipe ends, and the program starts. Raises OSError as the exec did.
    """
    held, go = os.pipe()
    failed, failure = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        _become(words, environ, mask, held, failure)
    os.close(held)
    os.close(failure)
    try:
        beside.start(pid)
    finally:
        os.close(go)
        number = b""
        while part := os.read(failed, 16):  # ends with the exec
            number += part
        os.close(failed)
    if number:
        os.waitpid(pid, 0)
        raise OSError(int(number), os.strerror(int(number)))
    return pid


def _become(
    words: Sequence[str],
    environ: Mapping[str, str],
    mask: set[int | signal.Signals],
    held: int,
    failure: int,
) -> NoReturn:
    """Wait in the child, then execute the program as posix_spawn would have."""
    try:
        os.read(held, 1)
        # While all are blocked: one that came meanwhile must find the program's disposition.
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            os.execvpe(words[0], list(words), environ)
        except OSError as error:
            shell = _for_the_shell(words, error)
            os.execve(shell[0], shell, environ)
    except OSError as error:
        os.write(failure, b"%d" % (error.errno or errno.EIO))
    finally:
        os._exit(127)


def _is_binary(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return b"\0" in file.read(128)
    except OSError:
        return True


def _wait(pid: int, beside: Recorders | None = None) -> ProgramOutcome:
    had_terminal = _has_terminal()
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        seconds = beside.watch() if beside is not None else None
        if seconds is None:
            taken = signal.sigwaitinfo(_TAKEN)
        elif (soon := signal.sigtimedwait(_TAKEN, seconds)) is not None:
            taken = soon
        else:
            continue
        if taken.si_signo in _FORWARDED and not _reached_both(taken, had_terminal):
            # The pid is still ours: the program has not been waited for.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, taken.si_signo)
    end_ns = time.monotonic_ns()
    code = os.waitstatus_to_exitcode(status)
    return ProgramOutcome(code, None, end_ns) if code >= 0 else ProgramOutcome(None, -code, end_ns)


def _reached_both(taken: signal.struct_siginfo, had_terminal: bool) -> bool:
    """Return True if the program has got this signal too, at the same moment as lotus."""
    leader = os.getsid(0)
    if taken.si_code > 0:
        # From the terminal (SI_KERNEL), to its foreground group; but a hang-up goes to the leader
        # of the session alone, which lotus is where a terminal was opened just for it.
        return not (taken.si_signo == signal.SIGHUP and leader == os.getpid())
    # A shell whose terminal hung up passes that on to the whole group.
    return (
        taken.si_signo == signal.SIGHUP
        and taken.si_pid == leader
        and had_terminal
        and not _has_terminal()
    )


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def end_as(outcome: ProgramOutcome) -> int:
    """Die by the signal that the program died by, or return its exit code."""
    if outcome.signal is None:
        assert outcome.exit_code is not None
        return outcome.exit_code
    with contextlib.suppress(Exception):
        # The program dumped its core; a second one, of lotus, would only confuse. A core handler
        # that is a pipe ignores the limit, hence both.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler to reset
        signal.signal(outcome.signal, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {outcome.signal})
    os.kill(os.getpid(), outcome.signal)
    # The first process of a container does not die of signals.
    return 128 + outcome.signal
