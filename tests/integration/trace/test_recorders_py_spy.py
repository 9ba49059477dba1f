"""py-spy beside a program: what it records, and the line where it cannot."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.launched import messages_of, python
from tests.integration.trace.beside import BUSY, needs_perf, note, samples, trace, words

pytestmark = pytest.mark.usefixtures("own_directory", "lotus_on_path")

PY_SPY = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
needs_py_spy = pytest.mark.skipif(PY_SPY is None, reason="py-spy is not installed")

# Changes functions, notes when, and does the same in a forked worker.
ALTERNATING = """
import glob, os, time
def first(until):
    while time.monotonic_ns() < until:
        for number in range(1000): pass
def second(until):
    while time.monotonic_ns() < until:
        for number in range(1000): pass
def run():
    start = time.monotonic_ns()
    with open(f"changes.{os.getpid()}", "w") as file:
        number = 0  # for as long as it takes py-spy to write two slices
        while number < 5 or (number < 300 and len(glob.glob("run/py-spy/*.json")) < 2):
            print(time.monotonic_ns(), "second" if number % 2 else "first", file=file)
            (second if number % 2 else first)(start + (number + 1) * 1_000_000_000)
            number += 1
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
    from native_map.recording import py_spy

    run = trace(*python(tmp_path, ALTERNATING), perf="", spy="py-spy")
    assert (run.returncode, messages_of(run)) == (0, [])
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
    for pid, count in compared.items():  # by chance a half would be wrong
        assert count > 20
        assert wrong[pid] <= 0.2 * count


@needs_py_spy
def test_python_that_a_shell_starts_late_is_found(tmp_path: Path) -> None:
    # py-spy is started again after ever longer pauses: it goes on until a slice is written.
    code = "import glob, time\nwhile not glob.glob('run/py-spy/*.json'): time.sleep(0.01)\n"
    program = python(tmp_path, code)
    run = trace("sh", "-c", f"sleep 2; {' '.join(program)}; exit 3", perf="", spy="py-spy")
    assert (run.returncode, messages_of(run)) == (3, [])
    assert note("py_spy")["slices"]


@needs_perf
@needs_py_spy
def test_perf_and_py_spy_record_side_by_side(tmp_path: Path) -> None:
    # It goes on until py-spy, which may be late, has written a slice.
    code = BUSY.format(seconds=2) + "import glob\n"
    code += "while time.process_time() < 300 and not glob.glob('run/py-spy/*.json'): pass\n"
    run = trace(*python(tmp_path, code + "raise SystemExit(3)"), spy="py-spy")
    assert (run.returncode, messages_of(run)) == (3, [])
    assert samples().total() > 0
    assert note("py_spy")["slices"]


def test_a_missing_py_spy_is_a_line() -> None:
    run = trace("sh", "-c", "exit 3", perf="", spy="no-such-py-spy")
    assert run.returncode == 3
    (line,) = messages_of(run)
    assert "pip install py-spy" in line


@needs_py_spy
def test_a_program_without_python_is_a_line() -> None:
    run = trace("sh", "-c", "sleep 2; exit 3", perf="", spy="py-spy")
    assert run.returncode == 3
    (line,) = messages_of(run)
    assert "found no Python" in line


def test_a_kernel_that_keeps_siblings_apart_is_known(tmp_path: Path) -> None:
    from lotus.recording.py_spy_sidecar import forbidden_by_yama

    scope = tmp_path / "ptrace_scope"
    assert not forbidden_by_yama(1000, scope)
    for level, user, forbidden in ((0, 1000, 0), (1, 1000, 1), (1, 0, 0), (2, 0, 0), (3, 0, 1)):
        scope.write_text(f"{level}\n")
        assert forbidden_by_yama(user, scope) == bool(forbidden)


@needs_py_spy
def test_a_py_spy_that_may_not_look_into_the_program_is_a_line(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("needs root, to give up its rights")
    # A py-spy that came before it hid has two seconds for its slice; the next one is refused.
    hides = "import ctypes, time\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\ntime.sleep(6)\n"
    command = words(*python(tmp_path, hides), perf="", spy="py-spy")
    # A process that hides from its own user (PR_SET_DUMPABLE), as root's rights would see it.
    drop = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
    run = subprocess.run([*drop, *command], capture_output=True)
    assert run.returncode == 0
    (line,) = messages_of(run)
    assert "ptrace_scope" in line
