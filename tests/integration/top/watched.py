"""Programs that are looked at while they run, and terminals to look on."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lotus.live.follower import Watch
from lotus.live.view import View
from tests.integration.conftest import LOTUS, PYTHON, environment
from tests.launching import SMALL_TORCH

# argv: workers, sample that never ends, how, seconds a sample, batches; a line a batch
PROGRAM = """
import signal, sys, threading, time
from torch.utils.data import DataLoader, Dataset

workers, bad, how, pace = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
most = int(sys.argv[5])

class Slow:
    def __call__(self, index):
        time.sleep(pace)
        while index == bad and how in ("sleep", "spin"):
            if how == "sleep":
                time.sleep(1000)
        return index

class Numbers(Dataset):
    def __init__(self):
        self.transform = Slow()
    def __len__(self):
        return 4 * most
    def __getitem__(self, index):
        return self.transform(index)

if __name__ == "__main__":
    batches = iter(DataLoader(Numbers(), batch_size=4, num_workers=workers))
    if how == "lost":
        for queue in batches._index_queues:
            queue.put = lambda item: None
    for number, batch in enumerate(batches):
        print("batch", number, flush=True)
        if how == "pause" and number == 3:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's would end the program
            time.sleep(1000)
        if how == "lock" and number == 3:
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
"""

Start = Callable[..., subprocess.Popen[bytes]]


def training(folder: Path) -> Path:
    """The program, in a file there."""
    path = folder / "training.py"
    path.write_text(PROGRAM)
    return path


class Started:
    """Programs traced into folder/R; gone at `end`."""

    def __init__(self) -> None:
        self.begun: list[subprocess.Popen[bytes]] = []

    def __call__(
        self,
        folder: Path,
        workers: int = 2,
        bad: int = -1,
        how: str = "",
        pace: float = 0.002,
        most: int = 10**6,
        command: list[str] | None = None,
        env: Mapping[str, str] = SMALL_TORCH,
    ) -> subprocess.Popen[bytes]:
        program = training(folder)
        words = [workers, bad, how, pace, most]
        command = command or [PYTHON, str(program), *map(str, words)]
        with (folder / "out").open("wb") as out:
            process = subprocess.Popen(
                [*LOTUS, "trace", "-q", "-o", str(folder / "R"), "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=folder,
                env=environment(env),
                start_new_session=True,
            )
        self.begun.append(process)
        return process

    def end(self) -> None:
        for process in self.begun:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def until(
    run: Path, good: Callable[[View], Any], process: subprocess.Popen[bytes] | None = None
) -> View:
    """Look until something holds."""
    watch = Watch(run)
    while True:
        view = watch.look()
        if good(view):
            return view
        if process is not None and process.poll() is not None:
            raise AssertionError(f"the program ended: {(run.parent / 'out').read_text()}")
        time.sleep(0.2)


def taken(view: View, least: int) -> bool:
    return bool(view.groups) and all(group.taken >= least for group in view.groups)


class Terminal:
    """A command on a terminal of its own; `seen` is all that it wrote there."""

    def __init__(
        self,
        command: list[str],
        rows: int = 40,
        columns: int = 100,
        env: Mapping[str, str] = SMALL_TORCH,
    ) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.modes = termios.tcgetattr(slave)
        self.slave = slave
        self.seen = ""

        def own() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        variables = {**env, "TERM": "xterm", "COLUMNS": str(columns), "LINES": str(rows)}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment(variables),
            preexec_fn=own,
        )  # fmt: skip

    def until(self, text: str) -> None:
        self.read_until(lambda: text in self.seen, repr(text))

    def read_until(self, holds: Callable[[], object], what: str = "it") -> None:
        """Read on meanwhile: a command whose terminal nobody reads stops as it writes."""
        while not holds():
            ended = self.process.poll() is not None
            if select.select([self.master], [], [], 0.2)[0]:
                self.seen += os.read(self.master, 1 << 16).decode("utf-8", "replace")
            elif ended:
                raise AssertionError(f"it ended before {what}: {self.seen[-2000:]}")

    def end(self) -> int:
        while self.process.poll() is None or select.select([self.master], [], [], 0)[0]:
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 1 << 16).decode("utf-8", "replace")
        assert termios.tcgetattr(self.slave) == self.modes
        os.close(self.slave)
        os.close(self.master)
        return self.process.returncode
