"""`lotus top` and `lotus trace --live`: real programs, looked at from beside."""

import contextlib
import fcntl
import functools
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lotus.live.view import Group, View
from lotus.live.watching import Watch
from tests.integration.called import called
from tests.integration.conftest import LOTUS, PYTHON, ROOT, SMALL_TORCH, environment

pytestmark = pytest.mark.usefixtures("torch")

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
Stuck = Callable[[str], tuple[Path, View]]


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
        program = folder / "training.py"
        program.write_text(PROGRAM)
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


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "training.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """start(workers, bad, how, pace, most, env=SMALL_TORCH): the program traced into R; gone after
    the test. It is torch's own loader that is looked at where env is {}.
    """
    started = Started()
    yield functools.partial(started, tmp_path)
    started.end()


@pytest.fixture(scope="module")
def stuck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stuck]:
    """stuck(how): where a program runs that has come to a stop so, and the view of it."""
    started = Started()
    ways = {"sleep": (2, 17), "spin": (0, 17), "lost": (2, -1), "lock": (2, -1)}
    folders = {how: tmp_path_factory.mktemp(how) for how in ways}
    processes = {how: started(folders[how], *way, how) for how, way in ways.items()}

    def wait(how: str) -> tuple[Path, View]:
        run = folders[how] / "R"
        return run, until(run, verdict_is("hung", "slow", "lost", "step"), processes[how])

    yield wait
    started.end()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "R"


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


def top(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return called("top", *arguments)


def as_process(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The same as a process of its own."""
    command = [*LOTUS, "top", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment({}), check=False)


def taken(view: View, least: int) -> bool:
    return bool(view.groups) and all(group.taken >= least for group in view.groups)


def group_of(view: View) -> Group:
    (group,) = view.groups
    return group


def group_samples(group: Group) -> list[str]:
    return [str(one.sample) for one in group.workers if one.sample is not None]


def samples(view: View) -> list[str]:
    return [sample for group in view.groups for sample in group_samples(group)]


def verdict_is(*kinds: str) -> Callable[[View], bool]:
    return lambda view: view.verdict is not None and view.verdict.kind in kinds


def test_a_running_program(start: Start, run: Path) -> None:
    process = start(pace=0.01, env={})
    until(run, lambda view: taken(view, 20), process)
    shown = as_process("--json", run)
    assert shown.returncode == 0, shown.stderr
    document = json.loads(shown.stdout)
    assert document["schema"] == 1
    assert document["state"] == "running"
    assert document["verdict"]["kind"] == "moving"
    (group,) = document["groups"]
    assert group["loader"]["num_workers"] == 2
    assert [worker["worker"] for worker in group["workers"]] == [0, 1]
    for one in (group["main"], *group["workers"]):
        assert one["alive"] is True
        assert one["rss"] > 1 << 20
        assert one["cpu"] is not None
    # Workers sleep 40 ms a batch, and the consumer does nothing: it waits, for what two can make.
    assert 1 < group["recent"]["batches"] < 51
    assert group["recent"]["samples"] == pytest.approx(4 * group["recent"]["batches"])
    assert group["recent"]["wait_share"] > 0.5
    assert group["operations"][0]["name"] == "Slow"
    assert group["operations"][0]["share"] > 0.5
    assert 0 <= group["ready"] <= group["capacity"] == 4
    text = as_process(run).stdout  # no terminal: one snapshot
    assert "samples/s" in text
    assert re.search(r"worker 1 .* (fetch|idle|send|collate)", text)
    # Nobody's business but the program's: it goes on, and ended well where it is left alone.
    assert process.poll() is None


@pytest.mark.parametrize(("workers", "how", "kind"), [(2, "sleep", "hung"), (0, "spin", "slow")])
def test_a_sample_that_does_not_end_is_named(
    stuck: Stuck, workers: int, how: str, kind: str
) -> None:
    run, view = stuck(how)
    verdict = view.verdict
    assert verdict is not None
    assert (verdict.sample, verdict.batch) == (17, 4)
    group = group_of(view)
    assert group.taken == 4
    maker = group.workers[0] if workers else group.main  # batch 4 is the third of worker 0
    assert (verdict.pid, verdict.worker) == (maker.pid, 0 if workers else -1)
    shown = top("--once", run).stdout
    assert "nothing has moved for" in shown
    assert "sample 17" in shown
    assert f"py-spy dump --pid {maker.pid}" in shown
    document = json.loads(top("--json", run).stdout)
    assert document["verdict"]["kind"] == kind  # after two looks: what it uses of a core is known
    if how == "sleep":
        assert "sleeps" in shown


def test_a_batch_that_nobody_makes(stuck: Stuck) -> None:
    _, view = stuck("lost")
    assert view.verdict is not None
    assert view.verdict.kind == "lost"
    assert view.verdict.batch == 4  # the first beyond what was asked for before
    assert "all 2 workers are idle" in "\n".join(view.verdict.lines)


def test_a_deadlock_in_the_programs_own_step_is_not_the_loaders(stuck: Stuck) -> None:
    run, view = stuck("lock")
    assert view.verdict is not None
    assert view.verdict.kind == "step"
    assert not view.verdict.bad
    assert group_of(view).ready == 4  # the loader has done all that it may
    shown = top("--once", run).stdout
    assert "own step lasts" in shown
    assert f"py-spy dump --pid {group_of(view).main.pid}" in shown


def test_a_stopped_program(start: Start, run: Path) -> None:
    process = start(2)
    view = until(run, lambda view: taken(view, 5), process)
    main = group_of(view).main.pid
    os.kill(main, signal.SIGSTOP)
    view = until(run, verdict_is("stopped"), process)
    assert view.verdict is not None
    assert view.verdict.pid == main
    assert f"kill -CONT {main}" in top("--once", run).stdout
    os.kill(main, signal.SIGCONT)
    until(run, verdict_is("moving"), process)


def test_a_worker_that_was_killed(start: Start, run: Path) -> None:
    process = start(2, how="pause", env={})
    view = until(run, lambda view: taken(view, 4) and group_of(view).ready == 4, process)
    worker = group_of(view).workers[1].pid
    os.kill(worker, signal.SIGKILL)
    view = until(run, verdict_is("dead"), process)
    assert view.verdict is not None
    assert (view.verdict.pid, view.verdict.worker) == (worker, 1)
    assert f"DEAD: worker 1 (pid {worker}) is gone" in top("--once", run).stdout


def test_a_killed_run_shows_its_last_state(start: Start, run: Path) -> None:
    process = start(2, bad=17, how="sleep")
    until(run, lambda view: "17" in samples(view), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    until(run, lambda view: view.state == "killed")
    shown = " ".join(top("--once", run).stdout.split())
    assert "killed; last sign of life" in shown
    assert re.search(r"worker 0 \(pid \d+\) was at: fetch batch 4, sample 17", shown)
    assert f"lotus report {run}" in shown


def test_a_run_that_has_ended_says_so(start: Start, run: Path) -> None:
    process = start(2, most=5)
    assert process.wait() == 0
    shown = top("--once", run).stdout
    assert re.search(r"R: ended 2\d{3}-.* \(code 0\)", " ".join(shown.split()))
    assert f"lotus report {run}" in shown
    assert "was at" not in shown


def test_two_ranks_are_two_groups(start: Start, run: Path, program: Path) -> None:
    words = f"{PYTHON} {program} 1 {{bad}} sleep 0.002 1000000"
    script = "; ".join(f"RANK={rank} WORLD_SIZE=2 {words.format(bad=17 if rank else -1)} &"
                       for rank in range(2)).replace("&;", "&") + " wait"  # fmt: skip
    process = start(command=["bash", "-c", script], env={})
    view = until(
        run,
        lambda view: (
            len(view.groups) == 2 and taken(view, 4) and group_samples(view.groups[1]) == ["17"]
        ),
        process,
    )
    assert [group.rank for group in view.groups] == [0, 1]
    assert [len(group.workers) for group in view.groups] == [1, 1]
    shown = top("--once", run).stdout
    assert re.search(r"^rank 0 +[\d.,]+ samples/s", shown, re.MULTILINE)
    assert re.search(r"^rank 1 on .*training.py:\d+ Numbers, 1 worker", shown, re.MULTILINE)


def test_stacks_name_the_line(start: Start, run: Path) -> None:
    process = start(2, bad=17, how="sleep")
    until(run, lambda view: "17" in samples(view), process)
    shown = top("--once", "--stacks", run).stdout
    if "py-spy is not installed" in shown or "py-spy:" in shown:
        pytest.skip("no py-spy that may look into other processes")
    assert "Slow.__call__ (training.py:" in shown or "__call__ (training.py:" in shown
    assert "lotus hook" not in shown
    terminal = Terminal([*LOTUS, "top", "--stacks", "--interval", "0.2", str(run)], rows=60)
    terminal.until("__call__ (training.py:")
    os.write(terminal.master, b"q")
    assert terminal.end() == 0


def test_no_run_is_a_line(run: Path, tmp_path: Path) -> None:
    shown = top("--once", run)
    assert shown.returncode == 2
    assert "is no run (yet)" in shown.stderr
    (tmp_path / "file").touch()
    assert "is a file" in top("--once", tmp_path / "file").stderr
    run.mkdir()
    (run / "run.json").write_text("{}")
    assert "is no run of lotus" in top("--once", run).stderr
    assert top("--interval", "0", run).returncode == 2


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
        while text not in self.seen:
            ended = self.process.poll() is not None
            if select.select([self.master], [], [], 0.2)[0]:
                self.seen += os.read(self.master, 1 << 16).decode("utf-8", "replace")
            elif ended:
                raise AssertionError(f"it ended without {text!r}: {self.seen[-2000:]}")

    def end(self) -> int:
        while self.process.poll() is None or select.select([self.master], [], [], 0)[0]:
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 1 << 16).decode("utf-8", "replace")
        assert termios.tcgetattr(self.slave) == self.modes
        os.close(self.slave)
        os.close(self.master)
        return self.process.returncode


@pytest.mark.parametrize("how", ["q", "\x03", "SIGTERM"])
def test_the_screen_is_left_as_it_was(start: Start, run: Path, how: str) -> None:
    process = start(2)
    until(run, lambda view: taken(view, 5), process)
    terminal = Terminal([*LOTUS, "top", "--interval", "0.2", str(run)])
    terminal.until("samples/s")
    terminal.until("worker 1")
    if how == "SIGTERM":
        terminal.process.terminate()
    else:
        os.write(terminal.master, how.encode())
    assert terminal.end() == 0
    assert "\x1b[?1049h" in terminal.seen
    assert terminal.seen.rindex("\x1b[?1049l") > terminal.seen.rindex("\x1b[?1049h")
    assert terminal.seen.rindex("\x1b[?25h") > terminal.seen.rindex("\x1b[?25l")
    assert process.poll() is None


def test_the_screen_waits_for_a_run_and_tells_its_end(start: Start, run: Path) -> None:
    terminal = Terminal([*LOTUS, "top", "--interval", "0.2", str(run)], columns=60)
    terminal.until("no run here yet")
    process = start(0, most=4)
    terminal.until("lotus report")
    process.wait()
    os.write(terminal.master, b"q")
    assert terminal.end() == 0
    assert "lotus report" in terminal.seen[terminal.seen.rindex("\x1b[?1049l") :]


def test_the_screen_comes_back_after_a_suspension(start: Start, run: Path) -> None:
    process = start(2)
    until(run, lambda view: taken(view, 5), process)
    terminal = Terminal([*LOTUS, "top", "--interval", "0.2", str(run)])
    terminal.until("samples/s")
    os.write(terminal.master, b"\x1a")
    while not re.search(r"State:\s+T", Path(f"/proc/{terminal.process.pid}/status").read_text()):
        time.sleep(0.05)
    assert termios.tcgetattr(terminal.slave) == terminal.modes
    terminal.seen = ""
    os.kill(terminal.process.pid, signal.SIGCONT)
    terminal.until("samples/s")
    assert "\x1b[?1049h" in terminal.seen
    os.write(terminal.master, b"q")
    assert terminal.end() == 0


def test_live_lines_stand_among_those_of_the_program(run: Path, tmp_path: Path) -> None:
    program = tmp_path / "training.py"
    code = PROGRAM + "    print('all', number + 1); print('unfinished', end='', flush=True)\n"
    code += (
        f"    while not __import__('os').path.exists({str(tmp_path / 'go')!r}): time.sleep(0.1)\n"
    )
    code += "    sys.exit(7)\n"
    program.write_text(code)
    command = [*LOTUS, "trace", "--live", "-o", str(run), "--", PYTHON, str(program)]
    terminal = Terminal([*command, "2", "-1", "", "0.05", "120"])
    terminal.until(f"lotus top {run}")
    terminal.until("samples/s, waits")
    terminal.until("unfinished")
    (tmp_path / "go").touch()
    assert terminal.end() == 7
    shown = terminal.seen.replace("\r\n", "\n")
    lines = [line.split("\r")[-1] for line in shown.split("\n")]
    assert [line for line in lines if line.startswith("batch ")] == [
        f"batch {number}" for number in range(120)
    ]
    status = next(line for line in lines if "samples/s, waits" in line)
    assert re.fullmatch(r"lotus: \d[\d.,]* samples/s, waits .*", status)
    assert shown.rindex("next: lotus report") > shown.rindex("unfinished")


def test_live_says_a_stop_once_and_passes_signals_on(run: Path, program: Path) -> None:
    command = [*LOTUS, "trace", "--live", "-q", "-o", str(run), "--", PYTHON, str(program)]
    terminal = Terminal([*command, "2", "17", "sleep", "0.001", "1000"])
    terminal.until("HUNG: nothing has moved")
    terminal.until("next: py-spy dump --pid")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.end() == -signal.SIGTERM
    assert terminal.seen.count("HUNG") == 1


def test_live_into_a_file_says_where_to_look(run: Path, program: Path, tmp_path: Path) -> None:
    command = [*LOTUS, "trace", "--live", "-q", "-o", str(run), "--", PYTHON, str(program)]
    command += ["0", "-1", "", "0", "5"]
    own = environment(SMALL_TORCH)
    done = subprocess.run(command, capture_output=True, text=True, env=own, check=True)
    assert done.stdout.split("\n")[:5] == [f"batch {number}" for number in range(5)]
    assert done.stderr in ("", f"lotus: recording into {run}; lotus top {run} shows more\n")


def rendered(text: str, columns: int) -> list[str]:
    """The lines that a terminal shows: it wraps when a character comes after the last column."""
    rows, at = [[" "] * columns], 0
    for character in text:
        if character == "\r":
            at = 0
        elif character == "\n":
            rows.append([" "] * columns)
        else:
            if at == columns:
                rows.append([" "] * columns)
                at = 0
            rows[-1][at] = character
            at += 1
    return ["".join(row).rstrip() for row in rows]


@pytest.mark.parametrize(
    ("begun", "expected"),
    [
        ("", ["lotus: a line", "after"]),
        ("a full line\\n", ["a full line", "lotus: a line", "after"]),
        ("half a bar", ["half a bar", "lotus: a line", "after"]),
        ("x" * 30, ["x" * 30, "lotus: a line", "after"]),
    ],
)
def test_a_line_covers_nothing_and_leaves_no_gap(begun: str, expected: list[str]) -> None:
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from lotus.live.ticking import Ticker
sys.stderr.write("{begun}"); sys.stderr.flush()
assert Ticker(Path("R"))._say("lotus: a line")
print("after", end="", flush=True)
"""
    terminal = Terminal([sys.executable, "-c", code], columns=30)
    assert terminal.end() == 0, terminal.seen
    assert rendered(terminal.seen, 30) == expected


def test_no_line_where_the_program_draws_its_screen() -> None:
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
import termios, tty
from pathlib import Path
from lotus.live.ticking import Ticker
modes = termios.tcgetattr(2)
tty.setcbreak(2)
assert not Ticker(Path("R"))._say("lotus: a line")
termios.tcsetattr(2, termios.TCSANOW, modes)
"""
    terminal = Terminal([sys.executable, "-c", code])
    assert terminal.end() == 0, terminal.seen
    assert terminal.seen == ""
