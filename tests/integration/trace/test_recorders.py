"""Recorders beside the program: what it would miss if they disturbed it, and what they record.

The program is held until perf is attached; whatever happens to perf, it must run as without.
"""

import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration.launched import manifest, python
from tests.integration.trace.beside import BUSY, executable, needs_perf, note, samples, trace, words
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("own_directory", "lotus_on_path")


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
def test_closed_streams_change_nothing(redirection: str) -> None:
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


@needs_perf
def test_a_signal_to_lotus_alone_reaches_the_program_once_and_not_perf(tmp_path: Path) -> None:
    process = subprocess.Popen(words(*python(tmp_path, WAITS)), start_new_session=True)
    wait_until(Path("ready").exists, process)
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
    wait_until(Path("ready").exists, pid)
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
    wait_until(Path("held").exists, process)
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
@pytest.mark.parametrize("method", ["fork", "forkserver"])  # its server is spawned
def test_workers_are_in_the_file_and_batches_are_as_without(
    method: str, tmp_path: Path, batches_without: bytes
) -> None:
    traced = trace(*python(tmp_path, LOADER), method)
    assert (traced.returncode, traced.stdout) == (0, batches_without)
    from lotus.reading.run import load

    workers = load("run").workers
    assert len(workers) == 2
    counts = samples()
    # How many of the 180 that 0.36 s have at 499 a second is a matter of the machine.
    for pid in workers["pid"]:
        assert counts[int(pid)] > 0
    assert counts.total() == note()["samples"]


@needs_perf
def test_the_manifest_says_what_was_recorded(tmp_path: Path) -> None:
    code = "import time\nbegan = time.monotonic(), time.process_time()\n"
    code += BUSY.format(seconds=0.5)
    code += "ended = time.monotonic(), time.process_time()\n"
    code += "stretch = (ended[0] - began[0]) / (ended[1] - began[1])\n"
    code += "print(time.process_time(), stretch, file=open('used', 'w'))\n"
    code += "print(time.monotonic_ns(), file=open('last', 'w'))\n"
    assert trace(*python(tmp_path, code)).returncode == 0
    perf = note()
    assert perf["command"][1] == "record"
    assert (perf["events"], perf["frequency"], perf["kernel"]) == (["cpu-clock"], 499, False)
    assert perf["version"].startswith("perf version")
    assert perf["start_ns"] < perf["ready_ns"] < manifest()["end_ns"]
    assert outlived_the_program()
    assert perf["bytes"] == Path("run/perf.data").stat().st_size
    # 499 samples a second of CPU time, but for what the kernel did for the program.
    used, stretch = map(float, Path("used").read_text().split())
    expected = 499 * used
    # perf's clock goes on where the host takes the core away, which is no CPU time of the program;
    # where it is, it has one sample, and where its interrupts take long the kernel lowers the rate.
    assert 0.1 * expected < samples().total() < 1.2 * expected * max(stretch, 1)
    assert perf["samples"] == samples().total()


@needs_perf
def test_it_records_from_the_programs_first_instruction() -> None:
    assert trace("sh", "-c", "exit 0").returncode == 0
    script = ["perf", "script", "-i", "run/perf.data", "--show-task-events", "--show-mmap-events"]
    out = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    assert any("PERF_RECORD_COMM exec: sh:" in line for line in out.splitlines())


def test_a_run_without_recorders_is_as_before() -> None:
    assert trace("true", perf="").returncode == 0
    assert "recorders" not in manifest()
