"""What is read of a process from /proc/PID/stat."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lotus.inside.common import process_stat
from lotus.inside.common.process_stat import ENDED, TICK_NS, ProcessStat
from tests.waiting import wait_until

# proc_pid_stat(5); each number is the field's own.
FIELDS = " ".join(str(number) for number in range(4, 53))


@pytest.mark.parametrize("name", ["python", "a) R 9 (b", "( )", ""])
def test_a_name_with_blanks_and_parentheses_moves_no_field(name: str) -> None:
    stat = ProcessStat(f"7 ({name}) S {FIELDS}\n".encode())
    assert (stat.name, stat.state, stat.parent, stat.session) == (name, "S", 4, 6)
    assert (stat.minor_faults, stat.start_ticks, stat.is_complete) == (10, 22, True)
    assert (stat.user_ns, stat.system_ns) == (14 * TICK_NS, 15 * TICK_NS)
    assert stat.children_ns == (16 + 17) * TICK_NS


def test_a_process_is_described() -> None:
    stat = process_stat.read(os.getpid())
    assert (stat.parent, stat.session) == (os.getppid(), os.getsid(0))
    assert stat.state == "R"
    assert process_stat.read("self").start_ticks == stat.start_ticks


def test_a_process_that_was_forked_has_executed_no_program() -> None:
    code = "import os, time\nprint(os.fork() or time.sleep(100), flush=True)\ntime.sleep(100)"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            forked, executed = process_stat.read(child), process_stat.read(parent.pid)
        finally:
            os.kill(child, 9)
            parent.kill()
    assert (forked.parent, forked.is_forked, executed.is_forked) == (parent.pid, True, False)


def test_a_process_that_has_ended_has_a_state_until_its_parent_waits_for_it() -> None:
    child = subprocess.Popen(["true"])
    wait_until(lambda: process_stat.read(child.pid).state in ENDED)
    child.wait()
    with pytest.raises((FileNotFoundError, ProcessLookupError)):
        process_stat.read(child.pid)


@pytest.mark.parametrize("text", ["", "7 (python) S 1 2"])
def test_an_incomplete_file_is_that_of_a_process_that_is_gone(tmp_path: Path, text: str) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(text)
    with pytest.raises(ProcessLookupError):
        process_stat.read(7, str(tmp_path))
