"""`lotus attach --perf`: functions of a running program, and what is left of perf after it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lotus.attach.stacks import stack_recorder
from lotus.hardware.sampling_probe import sampling_event
from lotus.recording import measurement_plan
from tests.integration.attach.attaching import PROGRAMS, attach, children, running, sleeping
from tests.integration.launched import LOTUS
from tests.waiting import wait_until

PROGRAM = [sys.executable, PROGRAMS / "counted/native_operations.py"]
needs_py_spy = pytest.mark.skipif(bool(stack_recorder.find()[1]), reason="py-spy is needed")
needs_perf = pytest.mark.skipif(
    shutil.which("perf") is None or not sampling_event()[0], reason="perf can sample nothing here"
)
needs_counters = pytest.mark.skipif(
    "task_clock" not in (measurement_plan.plan("software").counters or ""),
    reason="the kernel counts nothing for this user",
)
pytestmark = needs_py_spy


@needs_perf
def test_functions_stand_under_their_operations(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with running(*PROGRAM) as program:
        wait_until(lambda: len(children(program.pid)) == 2, program)
        done = attach(str(program.pid), "--perf", "--seconds", "10", "-o", str(run))
        assert program.poll() is None
    assert done.returncode == 0, done.stderr
    assert "Functions" in done.stdout
    assert {path.name for path in run.iterdir()} <= {
        ".made", "attach.json", "functions.json", "run.json",
    }  # fmt: skip
    report = subprocess.run([*LOTUS, "report", "--json", run], capture_output=True, check=True)
    functions = json.loads(report.stdout)["functions"]
    operations = {each["name"]: each for each in functions["operations"]}
    expected = {"Checksum": "adler32", "Remainder": "crc_hqx"}
    for name, word in expected.items():
        # On a machine that lets the program run only now and then there may be too few samples, or
        # calls follow one another so regularly that clocks cannot be brought together.
        assert operations[name]["state"] in ("known", "few", "short", "regular")
        table = operations[name]["functions"]
        other = next(each for each in expected.values() if each != word)
        if operations[name]["state"] == "known" and _is_named(functions["processes"]):
            share = dict.fromkeys((word, other), 0.0)
            for row in table:
                for part in share:
                    share[part] += row["share"] if part in row["function"] else 0.0
            assert share[word] > share[other]
    page = tmp_path / "page.html"
    subprocess.run([*LOTUS, "report", run, "--html", page], capture_output=True, check=True)
    assert "C and C++ functions" in page.read_text()
    text = subprocess.run([*LOTUS, "report", run], capture_output=True, check=True, text=True)
    assert "C and C++ functions of whole processes" in text.stdout


@needs_counters
def test_threads_are_counted_as_the_scheduler_does(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with running(*PROGRAM) as program:
        wait_until(lambda: len(children(program.pid)) == 2, program)
        done = attach(str(program.pid), "--perf", "--seconds", "5", "-o", str(run), "--json")
    assert done.returncode == 0, done.stderr
    counters = json.loads(done.stdout)["counters"]
    kinds = {(row["process"], row["thread"]): row for row in counters["rows"]}
    workers, main = kinds["workers", "first"], kinds["main", "first"]
    assert workers["processes"] == workers["threads"] == 2
    assert main["processes"] == main["threads"] == 1
    # The workers compute, and the loop waits for them.
    assert workers["counts"]["task_clock"] > main["counts"]["task_clock"]
    for row in counters["clocks"]:
        apart = abs(row["counted_ns"] - row["clock_ns"])
        told = any(" by the scheduler " in text for text in counters["remarks"])
        assert told or apart <= max(0.05 * row["clock_ns"], 10e6)
    text = subprocess.run([*LOTUS, "report", run], capture_output=True, check=True, text=True)
    assert "Counters of threads" in text.stdout
    page = tmp_path / "page.html"
    subprocess.run([*LOTUS, "report", run, "--html", page], capture_output=True, check=True)
    assert "Counters of threads" in page.read_text()


def _is_named(processes: list[dict[str, str]]) -> bool:
    """Whether the libraries here tell the names of both functions."""
    names = " ".join(row["function"] for row in processes)
    return "adler32" in names and "crc_hqx" in names


def test_without_perf_the_rest_is_shown_and_a_line_says_what_to_type(tmp_path: Path) -> None:
    run = tmp_path / "run"
    without = {**os.environ, "PATH": str(tmp_path)}
    with running(*sleeping(1_000_000)) as program:
        wait_until(lambda: len(children(program.pid)) == 2, program)
        words = [str(program.pid), "--perf", "--seconds", "5", "-o", str(run)]
        done = attach(*words, env=without)
    assert done.returncode == 0, done.stderr
    flat = " ".join(done.stdout.split())
    assert "No C and C++ functions: perf is not installed; apt install linux-perf" in flat
    assert "(sampled)" in done.stdout
    report = subprocess.run([*LOTUS, "report", "--json", run], capture_output=True, check=True)
    document = json.loads(report.stdout)
    assert document["functions"] is None
    # Counting needs no program.
    assert document["counters"]["rows"] or document["counters"]["notes"]


@needs_perf
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_attach_that_is_killed_or_interrupted_leaves_no_perf(
    tmp_path: Path, number: signal.Signals
) -> None:
    with running(*sleeping(1_000_000)) as program:
        wait_until(lambda: len(children(program.pid)) == 2, program)
        words = [*LOTUS, "attach", str(program.pid), "--perf", "--seconds", "600"]
        words += ["-o", str(tmp_path / "run")]
        watcher = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: any(map(_is_perf, children(watcher.pid))), watcher)
        beside = [pid for pid in children(watcher.pid) if _is_perf(pid)]
        wait_until((tmp_path / "run" / "perf.data").exists, watcher)
        watcher.send_signal(number)
        watcher.wait()
        wait_until(lambda: not any(map(_is_perf, beside)))
        assert program.poll() is None


def _is_perf(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:2] == [b"record"]
    except OSError:
        return False
