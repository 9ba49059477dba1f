"""Runs code of the program in a forked child, so that it has no side effects on the program.

The program's samplers advance its generators, and a data set without workers keeps files and
caches. In a child all of that ends with the process. The child uses one thread of torch, because
threads of OpenMP hang in forked processes.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import struct
import sys
import time
import warnings

from ....common.control.deferred_interrupts import breakable
from .watchdog import CandidateError, held, signal_words, words
from .worker_processes import descendants, kill_remaining

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

_SIZE = struct.Struct("<Q")
_MOST = 1 << 30  # bytes of an answer
_OPEN = 1 << 20


class Forked:
    """Calls `serve(question)` in a child, one question after the other, until it is ended."""

    def __init__(self, serve: Callable[[Any], Any]) -> None:
        down_read, down_write = os.pipe()
        up_read, up_write = os.pipe()
        parent = os.getpid()
        # Python only prints exceptions that a handler raises in functions registered for forks.
        with held(signal.SIGINT), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about threads: only our code runs in the child
            try:
                self.pid = os.fork()
            except OSError as error:
                for fd in (down_read, down_write, up_read, up_write):
                    os.close(fd)
                raise CandidateError(f"no process could be started: {error.strerror}") from None
        if self.pid == 0:
            os.close(down_write)
            os.close(up_read)
            _serve(serve, down_read, up_write, parent)
        os.close(down_read)
        os.close(up_write)
        self._down, self._up = down_write, up_read
        os.set_blocking(self._up, False)

    def ask(self, question: Any, limit_s: float, what: str) -> Any:
        """Return the answer. Raises CandidateError, after which the child has ended."""
        deadline = time.monotonic() + limit_s
        try:
            _write(self._down, pickle.dumps(question))
            size = _SIZE.unpack(self._read(_SIZE.size, deadline))[0]
            if size > _MOST:
                raise CandidateError("what its process answered is too large")
            good, answer = pickle.loads(self._read(size, deadline))
        except (EOFError, BrokenPipeError):
            raise CandidateError(f"its process {self._ended()}") from None
        except TimeoutError:
            self.end()
            raise CandidateError(f"{what} took longer than {limit_s:g} s") from None
        except BaseException:
            self.end()
            raise
        if not good:
            self.end()
            raise CandidateError(answer)
        return answer

    def _read(self, size: int, deadline: float) -> bytes:
        parts = []
        poll = select.poll()
        poll.register(self._up, select.POLLIN)
        while size:
            left = deadline - time.monotonic()
            with breakable():
                ready = left > 0 and poll.poll(max(left * 1000, 1))
            if not ready:
                raise TimeoutError
            part = os.read(self._up, min(size, _OPEN))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _ended(self) -> str:
        status = self.end()
        if status is None:
            return "ended"
        if os.WIFSIGNALED(status):
            return f"was killed by {signal_words(os.WTERMSIG(status))}"
        return f"ended with exit code {os.waitstatus_to_exitcode(status)}"

    def end(self) -> int | None:
        """Kill the child and wait for it. Return its status if that is known."""
        if not self.pid:
            return None
        status = None
        with held(signal.SIGINT), held(signal.SIGCHLD):
            started = descendants([self.pid])
            try:
                # If it exits by itself, it closes its end of the pipe shortly before.
                for _ in range(20):
                    done, status = os.waitpid(self.pid, os.WNOHANG)
                    if done or not _at_end(self._up):
                        break
                    time.sleep(0.005)
                if not done:
                    os.kill(self.pid, signal.SIGKILL)
                    _, status = os.waitpid(self.pid, 0)
            except (ChildProcessError, ProcessLookupError):  # the program reaps all children
                status = None
            kill_remaining(started)
            self.pid = 0
            os.close(self._down)
            os.close(self._up)
        return status


def _at_end(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def once(function: Callable[[], Any], limit_s: float, what: str) -> Any:
    """Call `function` in a child of its own and return the result. Raises CandidateError."""
    child = Forked(lambda _: function())
    try:
        return child.ask(None, limit_s, what)
    finally:
        child.end()


def _write(fd: int, data: bytes) -> None:
    view = memoryview(_SIZE.pack(len(data)) + data)
    while view:
        view = view[os.write(fd, view[: 1 << 16]) :]


def _serve(serve: Callable[[Any], Any], questions: int, answers: int, parent: int) -> NoReturn:
    """Run the child; never return, so that the program does not continue in it."""
    try:
        gc.disable()
        gc.freeze()  # collecting existing garbage may stop the program's workers
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        torch: Any = sys.modules["torch"]
        torch.multiprocessing._prctl_pr_set_pdeathsig(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        torch.set_num_threads(1)
        gc.enable()
        while True:
            header = os.read(questions, _SIZE.size)
            if len(header) < _SIZE.size:
                break
            size, data = _SIZE.unpack(header)[0], b""
            while len(data) < size:
                data += os.read(questions, size - len(data))
            try:
                answer = (True, serve(pickle.loads(data)))
                reply = pickle.dumps(answer)
            except CandidateError as error:
                reply = pickle.dumps((False, str(error)))
            except Exception as error:
                reply = pickle.dumps((False, words(error)))
            _write(answers, reply)
    finally:
        os._exit(1)
