"""Recorders beside the program: what it would miss if they disturbed it, and what they record.

The program is held until perf is attached; whatever happens to perf, it must run as without.
"""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
needs_perf = pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")

# Arguments: the perf to run, "py-spy" to have that too, and the command.
DRIVER = """
import os, sys
import lotus.siblings
from lotus import launch
from lotus.manifest import Settings
from lotus.siblings import Perf, PySpy
from lotus.streams import say
from native_map.record import Sampling
from pathlib import Path
perf, spy, *command = sys.argv[1:]
lotus.siblings.ATTACH_S = float(os.environ.get("ATTACH_S", lotus.siblings.ATTACH_S))
siblings = [Perf(Sampling(("cpu-clock",), 499), perf, say)] if perf else []
class Broken:
    name = "broken"
    def __getattr__(self, name):
        return lambda *words: 1 / 0 if name == BREAKS else {}
    def watch(self):
        return 1 / 0 if BREAKS == "watch" else None
BREAKS = perf.partition("=")[2]
siblings = [Broken()] if BREAKS else siblings
siblings += [PySpy(py_spy=spy, say=say, slice_s=2)] if spy else []

try:
    _, outcome = launch.trace(command, Path("run"), Settings(), siblings=siblings)
except launch.CannotStart as error:
    say(f"lotus: {error}")
    sys.exit(error.exit_code)
sys.exit(launch.end_as(outcome))
"""


def words(*command: str | Path, perf: str = "perf", spy: str = "") -> list[str]:
    return [sys.executable, "-c", DRIVER, perf, spy, *map(str, command)]


def trace(
    *command: str | Path, perf: str = "perf", spy: str = "", **kwargs: Any
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(words(*command, perf=perf, spy=spy), **{"capture_output": True, **kwargs})


def manifest() -> dict[str, Any]:
    return json.loads(Path("run/run.json").read_text())  # type: ignore[no-any-return]


def note(name: str = "perf") -> dict[str, Any]:
    return manifest()["recorders"][name]  # type: ignore[no-any-return]


def said(run: subprocess.CompletedProcess[bytes]) -> list[str]:
    return [line for line in run.stderr.decode().splitlines() if line.startswith("lotus: ")]


def samples() -> "Counter[int]":
    """Return how many samples of each process `perf script` finds in the file."""
    script = ["perf", "script", "-i", "run/perf.data", "-F", "pid,tid"]
    out = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    return Counter(int(line.split("/")[0]) for line in out.splitlines())


def python(tmp_path: Path, code: str) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(code)
    return [sys.executable, str(path)]


def executable(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def processes_named(text: str) -> list[int]:
    """Return the processes whose command line holds a text."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and text in (entry / "cmdline").read_text():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in list(os.environ):
        if name.startswith("LOTUS_"):
            monkeypatch.delenv(name)


BUSY = """
import time
until = time.process_time() + {seconds}
while time.process_time() < until:
    for number in range(20_000):
        pass
"""


# The program is as without


@needs_perf
@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_is_passed_on(code: int) -> None:
    run = trace("sh", "-c", f"exit {code}")
    assert run.returncode == code
    assert not run.stderr
    assert manifest()["exit_code"] == code
    assert note()["problem"] is None


@needs_perf
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGKILL", "SIGPIPE"])
def test_death_by_a_signal_is_passed_on(name: str) -> None:
    number = getattr(signal, name)
    assert trace("sh", "-c", f"kill -{number} $$").returncode == -number
    assert manifest()["signal"] == number
    assert note()["problem"] is None


@needs_perf
def test_what_cannot_be_executed_is_told_as_without_perf(tmp_path: Path) -> None:
    assert trace("no-such-command-here").returncode == 127
    lost = executable(tmp_path / "lost", "#!/no/such/interpreter\n")
    run = trace(lost)
    assert run.returncode == 126
    assert "interpreter" in run.stderr.decode()
    assert manifest()["exit_code"] == 126


@needs_perf
def test_a_script_without_a_first_line_runs_as_from_a_shell(tmp_path: Path) -> None:
    executable(tmp_path / "script", 'echo "$0 $1"\nexit 5\n')
    run = trace("./script", "a b")
    assert (run.returncode, run.stdout) == (5, b"./script a b\n")


@needs_perf
def test_the_programs_process_is_as_without(tmp_path: Path) -> None:
    command = python(
        tmp_path,
        "import os, resource, signal\n"
        "status = open('/proc/self/status').read().splitlines()\n"
        "masks = [int(line[7:], 16) for line in status if line.startswith(('SigBlk', 'SigIgn'))]\n"
        "print([hex(mask & ~(3 << 31)) for mask in masks])\n"
        "print(sorted(os.listdir('/proc/self/fd')), os.getcwd(), os.umask(0))\n"
        "print(os.getpgid(0) == os.getpgid(os.getppid()), os.getsid(0), os.getpriority(0, 0))\n"
        "print([resource.getrlimit(number) for number in range(16)])\n",
    )
    direct = subprocess.run(command, capture_output=True)
    traced = trace(*command)
    assert direct.returncode == traced.returncode == 0
    assert direct.stdout.decode() == traced.stdout.decode()


@needs_perf
@pytest.mark.parametrize("redirection", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_nothing(redirection: str, tmp_path: Path) -> None:
    inner = words("sh", "-c", "ls /proc/$$/fd >o; exit 4")
    line = " ".join("'" + word.replace("'", "'\\''") + "'" for word in inner)
    for command in (line, "sh -c 'ls /proc/$$/fd >p; exit 4'"):
        assert subprocess.run(["sh", "-c", f"{command} {redirection}"]).returncode == 4
    assert Path("o").read_text() == Path("p").read_text()
    assert note()["problem"] is None
    assert note()["ready_ns"]


# Signals

WAITS = """
import os, signal, sys, time
taken = {signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, taken)
open("ready", "w").close()
lines, seconds = [], 1000.0
while (info := signal.sigtimedwait(taken, seconds)) is not None:
    lines.append(f"{signal.Signals(info.si_signo).name} {info.si_pid == os.getppid()}")
    seconds = 0.5
print(", ".join(lines), file=open("got", "w"), end="")
print(time.monotonic_ns(), file=open("last", "w"))
os._exit(7)
"""


def outlived_the_program() -> bool:
    """Whether perf was there when the program did its last. Which end lotus sees first is open."""
    return int(note()["end_ns"]) > int(Path("last").read_text())


def wait_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.01)


@needs_perf
def test_a_signal_to_lotus_alone_reaches_the_program_once_and_not_perf(tmp_path: Path) -> None:
    process = subprocess.Popen(words(*python(tmp_path, WAITS)), start_new_session=True)
    wait_for("ready")
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 7
    assert Path("got").read_text() == "SIGTERM True"
    assert outlived_the_program()
    assert note()["problem"] is None


@needs_perf
def test_a_ctrl_c_of_the_terminal_is_the_programs_alone(tmp_path: Path) -> None:
    command = words(*python(tmp_path, WAITS))
    pid, master = pty.fork()
    if pid == 0:
        os.execv(command[0], command)
    wait_for("ready")
    os.write(master, b"\x03")
    status = os.waitpid(pid, 0)[1]
    os.close(master)
    assert os.waitstatus_to_exitcode(status) == 7
    assert Path("got").read_text() == "SIGINT False"
    assert outlived_the_program()
    assert note()["problem"] is None


def test_a_signal_while_the_program_is_held_reaches_it(tmp_path: Path) -> None:
    slow = executable(tmp_path / "perf", "#!/bin/sh\ntouch held; sleep 1; exit 1\n")
    process = subprocess.Popen(
        words("sh", "-c", "touch ran; sleep 1000", perf=slow), stderr=subprocess.DEVNULL
    )
    wait_for("held")
    process.send_signal(signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM
    assert manifest()["signal"] == signal.SIGTERM


# What is recorded

LOADER = """
import hashlib, sys, time, torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, index):
        until = time.thread_time() + 0.015
        while time.thread_time() < until:
            sum(range(1000))
        return torch.rand(4) + index, torch.utils.data.get_worker_info().seed
if __name__ == "__main__":
    torch.manual_seed(5)
    digest = hashlib.sha256()
    loader = DataLoader(
        Data(), 4, shuffle=True, num_workers=2, multiprocessing_context=sys.argv[1]
    )
    for values, seeds in loader:
        digest.update(values.numpy().tobytes() + seeds.numpy().tobytes())
    print(digest.hexdigest())
"""


@pytest.fixture(scope="module")
def batches_without(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The digest of all batches and seeds, which are the same however the workers start."""
    command = [*python(tmp_path_factory.mktemp("direct"), LOADER), "fork"]
    return subprocess.run(command, capture_output=True, check=True).stdout


@needs_perf
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_are_in_the_file_and_batches_are_as_without(
    method: str, tmp_path: Path, batches_without: bytes
) -> None:
    traced = trace(*python(tmp_path, LOADER), method)
    assert (traced.returncode, traced.stdout) == (0, batches_without)
    from lotus.run import load

    workers = load("run").workers
    assert len(workers) == 2
    found = samples()
    # Each worker computes for 0.36 s, at 499 samples a second.
    for pid in workers["pid"]:
        assert found[int(pid)] > 50
    assert found.total() == note()["samples"]


@needs_perf
def test_the_manifest_says_what_was_recorded(tmp_path: Path) -> None:
    code = BUSY.format(seconds=0.5) + "print(time.monotonic_ns(), file=open('last', 'w'))\n"
    assert trace(*python(tmp_path, code)).returncode == 0
    perf = note()
    assert perf["command"][1] == "record"
    assert (perf["events"], perf["frequency"], perf["kernel"]) == (["cpu-clock"], 499, False)
    assert perf["version"].startswith("perf version")
    assert perf["start_ns"] < perf["ready_ns"] < manifest()["end_ns"]
    assert outlived_the_program()
    assert perf["bytes"] == Path("run/perf.data").stat().st_size
    # Half a second at 499 samples a second, but for what the kernel did for the program.
    assert 150 < samples().total() < 300
    assert perf["samples"] == samples().total()


@needs_perf
def test_it_records_from_the_programs_first_instruction(tmp_path: Path) -> None:
    assert trace("sh", "-c", "exit 0").returncode == 0
    script = ["perf", "script", "-i", "run/perf.data", "--show-task-events", "--show-mmap-events"]
    out = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    assert any("PERF_RECORD_COMM exec: sh:" in line for line in out.splitlines())


def test_a_run_without_recorders_is_as_before() -> None:
    assert trace("true", perf="").returncode == 0
    assert "recorders" not in manifest()


# What may happen to perf


@pytest.mark.parametrize("method", ["start", "watch", "stop", "note"])
def test_a_recorder_with_a_mistake_in_it_costs_no_run(method: str) -> None:
    # Long enough that it is watched at all.
    run = trace("sh", "-c", "echo ran; sleep 1; exit 3", perf=f"broken={method}")
    assert (run.returncode, run.stdout, run.stderr) == (3, b"ran\n", b"")
    assert manifest()["exit_code"] == 3
    assert note("broken")["problem"] == "ZeroDivisionError: division by zero"


def test_a_missing_perf_is_a_line() -> None:
    run = trace("sh", "-c", "echo ran; exit 3", perf="no-such-perf")
    assert (run.returncode, run.stdout) == (3, b"ran\n")
    (line,) = said(run)
    assert "no perf.data" in line
    assert "install" in line
    assert "install" in note()["problem"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 'Error: Access to performance monitoring is limited' >&2; exit 255", "sysctl"),
        ("exit 1", "without a word"),
        ("kill -9 $$", "without a word"),
        ("exec >/dev/null 2>&1; exit 129", "without a word"),
    ],
)
def test_a_perf_that_fails_is_a_line(script: str, expected: str, tmp_path: Path) -> None:
    perf = executable(tmp_path / "perf", f"#!/bin/sh\n{script}\n")
    run = trace("sh", "-c", "echo ran; exit 3", perf=perf)
    assert (run.returncode, run.stdout) == (3, b"ran\n")
    (line,) = said(run)
    assert expected in line


def test_a_perf_that_hangs_holds_the_program_no_longer_than_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    perf = executable(tmp_path / "perf", "#!/bin/sh\necho $$ >pid\nexec sleep 1000\n")
    monkeypatch.setenv("ATTACH_S", "2")
    run = trace("sh", "-c", "echo ran; exit 3", perf=perf)
    assert (run.returncode, run.stdout) == (3, b"ran\n")
    (line,) = said(run)
    assert "did not attach within 2 s" in line
    assert not Path(f"/proc/{int(Path('pid').read_text())}").exists()


@needs_perf
def test_a_perf_without_control_is_used_all_the_same(tmp_path: Path) -> None:
    real = shutil.which("perf")
    script = (
        'case "$*" in *--control*) '
        'echo "  Error: unknown option \\`control=fd:3,4\'" >&2; exit 129;; esac\n'
        f'exec {real} "$@"\n'
    )
    perf = executable(tmp_path / "perf", f"#!/bin/sh\n{script}")
    run = trace(*python(tmp_path, BUSY.format(seconds=0.5)), perf=perf)
    assert (run.returncode, said(run)) == (0, [])
    assert samples().total() > 100
    assert not any("--control" in word for word in note()["command"])


@needs_perf
def test_a_perf_killed_midway_leaves_the_program_alone(tmp_path: Path) -> None:
    process = subprocess.Popen(
        words("sh", "-c", "touch ready; read line; exit 3"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_for("ready")
    for pid in processes_named(f"--output={tmp_path / 'run' / 'perf.data'}"):
        os.kill(pid, signal.SIGKILL)
    assert process.stderr is not None
    line = process.stderr.readline().decode()  # said at once, not hours later
    assert "SIGKILL" in line
    assert process.communicate(b"\n") == (None, b"")
    assert process.returncode == 3
    assert note()["signal"] == signal.SIGKILL
    assert "SIGKILL" in note()["problem"]


@needs_perf
def test_killing_lotus_leaves_the_program_and_a_whole_file(tmp_path: Path) -> None:
    code = "open('ready', 'w').close(); input()" + BUSY.format(seconds=0.5) + "print('done')\n"
    process = subprocess.Popen(
        words(*python(tmp_path, code)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    wait_for("ready")
    process.kill()
    process.wait()
    assert process.communicate(b"\n")[0] == b"done\n"
    while processes_named(f"--output={tmp_path / 'run' / 'perf.data'}"):
        time.sleep(0.05)
    assert samples().total() > 100
    assert manifest()["state"] == "running"
    assert note()["ready_ns"]


def test_killing_lotus_while_it_holds_the_program_lets_it_go(tmp_path: Path) -> None:
    perf = executable(tmp_path / "perf", "#!/bin/sh\ntouch held\nexec sleep 3\n")
    process = subprocess.Popen(
        words("sh", "-c", "echo ran", perf=perf), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    wait_for("held")
    process.kill()
    assert process.communicate()[0] == b"ran\n"


@needs_perf
def test_a_full_disk_costs_the_samples_only(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    size = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(run)]
    if os.getuid() or subprocess.run(size, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        fill = "try:\n    open('run/rest', 'wb', 0).write(bytes(1 << 20))\nexcept OSError: pass\n"
        end = "print('done')\nraise SystemExit(3)\n"
        command = python(tmp_path, fill + BUSY.format(seconds=3) + end)
        done = trace(*command)
        assert (done.returncode, done.stdout) == (3, b"done\n")
        (line,) = said(done)
        assert "perf.data ends early: the disk is full" in line
    finally:
        subprocess.run(["umount", "-l", str(run)], check=True)


# py-spy

PY_SPY = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
needs_py_spy = pytest.mark.skipif(PY_SPY is None, reason="py-spy is not installed")

# Changes functions, notes when, and does the same in a forked worker.
ALTERNATING = """
import os, time
def first(until):
    while time.monotonic_ns() < until:
        for number in range(1000): pass
def second(until):
    while time.monotonic_ns() < until:
        for number in range(1000): pass
def run():
    start = time.monotonic_ns()
    with open(f"changes.{os.getpid()}", "w") as file:
        for number in range(10):
            print(time.monotonic_ns(), "second" if number % 2 else "first", file=file)
            (second if number % 2 else first)(start + (number + 1) * 400_000_000)
        print(time.monotonic_ns(), "end", file=file)
if __name__ == "__main__":
    time.sleep(1)
    pid = os.fork()
    run()
    if pid:
        os.waitpid(pid, 0)
"""


@needs_py_spy
def test_python_stacks_are_recorded_with_their_times(tmp_path: Path) -> None:
    from native_map import py_spy

    run = trace(*python(tmp_path, ALTERNATING), perf="", spy="py-spy")
    assert (run.returncode, said(run)) == (0, [])
    spy = note("py_spy")
    assert len(spy["slices"]) >= 2
    assert spy["samples"] > 0
    assert spy["cpu_ns"] > 0
    compared: Counter[int] = Counter()
    wrong: Counter[int] = Counter()
    for part in spy["slices"]:
        path = Path("run/py-spy") / part["file"]
        times = (part["start_ns"], part["seen_ns"], part["end_ns"])
        stacks = py_spy.read(path, *times, period_ns=10_000_000)
        functions = stacks.nodes["function"]
        for sample in stacks.samples[stacks.samples["node"] >= 0].itertuples():
            function = functions[sample.node]
            noted = Path(f"changes.{sample.pid}").read_text().split()
            changes, names = [int(word) for word in noted[::2]], noted[1::2]
            # Nothing is said of samples near a change: py-spy notes the time when it has looked at
            # all processes, on a busy machine many milliseconds late.
            near = stacks.bound_ns + 100_000_000
            if function not in ("first", "second") or any(
                abs(change - sample.time_ns) < near for change in changes
            ):
                continue
            at = sum(change <= sample.time_ns for change in changes) - 1
            compared[sample.pid] += 1
            wrong[sample.pid] += names[at] != function
    assert len(compared) == 2
    for pid, count in compared.items():
        assert count > 50
        assert wrong[pid] <= 0.1 * count


@needs_py_spy
def test_python_that_a_shell_starts_late_is_found(tmp_path: Path) -> None:
    program = python(tmp_path, BUSY.format(seconds=1))
    run = trace("sh", "-c", f"sleep 2; {' '.join(program)}; exit 3", perf="", spy="py-spy")
    assert (run.returncode, said(run)) == (3, [])
    assert note("py_spy")["slices"]


@needs_perf
@needs_py_spy
def test_perf_and_py_spy_record_side_by_side(tmp_path: Path) -> None:
    run = trace(*python(tmp_path, BUSY.format(seconds=2) + "raise SystemExit(3)"), spy="py-spy")
    assert (run.returncode, said(run)) == (3, [])
    assert samples().total() > 100
    assert note("py_spy")["slices"]


def test_a_missing_py_spy_is_a_line() -> None:
    run = trace("sh", "-c", "exit 3", perf="", spy="no-such-py-spy")
    assert run.returncode == 3
    (line,) = said(run)
    assert "pip install py-spy" in line


@needs_py_spy
def test_a_program_without_python_is_a_line() -> None:
    run = trace("sh", "-c", "sleep 2; exit 3", perf="", spy="py-spy")
    assert run.returncode == 3
    (line,) = said(run)
    assert "found no Python" in line


def test_a_kernel_that_keeps_siblings_apart_is_known(tmp_path: Path) -> None:
    from lotus.siblings import forbidden_by_yama

    scope = tmp_path / "ptrace_scope"
    assert not forbidden_by_yama(1000, scope)
    for level, user, forbidden in ((0, 1000, 0), (1, 1000, 1), (1, 0, 0), (2, 0, 0), (3, 0, 1)):
        scope.write_text(f"{level}\n")
        assert forbidden_by_yama(user, scope) == bool(forbidden)


@needs_py_spy
def test_a_py_spy_that_may_not_look_into_the_program_is_a_line(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("needs root, to give up its rights")
    hides = "import ctypes, time\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\ntime.sleep(3)\n"
    command = words(*python(tmp_path, hides), perf="", spy="py-spy")
    # A process that hides from its own user (PR_SET_DUMPABLE), as root's rights would see it.
    drop = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
    run = subprocess.run([*drop, *command], capture_output=True)
    assert run.returncode == 0
    (line,) = said(run)
    assert "ptrace_scope" in line
