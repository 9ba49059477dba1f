"""Counters of the threads of another process: of real ones, and of made kernels that refuse."""

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
import pytest

from lotus.attach.threads import thread_counters
from lotus.attach.threads.thread_counters import ThreadCounters
from lotus.inside.common import perf_event
from lotus.inside.common.perf_event import Event
from lotus.recording import measurement_plan
from lotus.recording.measurement_plan import MeasurementPlan
from tests.unit.kernels import Counters, Kernel
from tests.waiting import wait_until

needs_counters = pytest.mark.skipif(
    "task_clock" not in (measurement_plan.plan("software").counters or ""),
    reason="the kernel counts nothing for this user",
)
SOFTWARE = [Event("task_clock", 1, 1), Event("page_faults", 1, 2)]
HARDWARE = [Event("cycles", 0, 0), Event("instructions", 0, 1)]
# Each line that it reads is where to compute for a while; it answers with the CPU time of that.
PROGRAM = """
import os, sys, threading, time
def compute():
    begin = time.thread_time_ns()
    while time.thread_time_ns() < begin + 200_000_000:
        pass
    return time.thread_time_ns() - begin
def in_thread():
    answers = []
    # It ends with the next line.
    thread = threading.Thread(target=lambda: (answers.append(compute()), sys.stdin.readline()))
    thread.start()
    thread.join()
    return answers[0]
def in_child():
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(write, b"%d" % compute())
        os._exit(0)
    os.waitpid(pid, 0)
    return int(os.read(read, 99))
waiting, go = threading.Event(), threading.Event()
answers = []
def earlier():
    go.wait()
    answers.append(compute())
    waiting.set()
def in_earlier_thread():
    go.set()
    waiting.wait()
    return answers[0]
threading.Thread(target=earlier, daemon=True).start()
places = {"main": compute, "thread": in_thread, "child": in_child, "earlier": in_earlier_thread}
print("ready", flush=True)
for line in sys.stdin:
    print(places[line.strip()](), flush=True)
"""


class Program:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def compute(self, place: str) -> int:
        """Let it compute there; the CPU time of it in ns."""
        self.begin(place)
        return self.end()

    def begin(self, place: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{place}\n")
        self._process.stdin.flush()

    def end(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def program() -> Iterator[Program]:
    program = Program()
    yield program
    program.close()


def counted(record: dict[str, Any], event: str) -> pd.DataFrame:
    """An event's counts, each thread once."""
    counts = pd.DataFrame(record["counts"])
    return counts[counts["event"] == record["events"].index(event)]


@needs_counters
def test_each_thread_has_its_own_count(program: Program) -> None:
    counters = ThreadCounters(measurement_plan.plan("software"))
    begun = time.monotonic_ns()
    counters.look([program.pid])
    in_main, in_earlier = program.compute("main"), program.compute("earlier")
    record = counters.finish()
    passed = time.monotonic_ns() - begun
    clock = counted(record, "task_clock")
    assert len(clock) == 2
    first = clock.loc[clock["tid"] == program.pid, "count"].item()
    # That thread has ended meanwhile, and its count is there.
    other = clock.loc[clock["tid"] != program.pid, "count"].item()
    # The counters' clock holds what a hypervisor takes, too: it is bounded by the time that passed.
    assert 0.75 * in_main <= first <= passed
    assert 0.75 * in_earlier <= other <= passed
    assert (clock["enabled_ns"] == clock["running_ns"]).all()
    assert 0.75 * (in_main + in_earlier) <= record["clocks"]["clock_ns"][0] <= 2 * passed


@needs_counters
def test_a_child_does_not_count_as_the_thread_that_started_it(program: Program) -> None:
    counters = ThreadCounters(measurement_plan.plan("software"))
    counters.look([program.pid])
    used = program.compute("child")
    clock = counted(counters.finish(), "task_clock")
    assert clock["count"].sum() < used / 2


@needs_counters
def test_a_thread_that_begins_later_is_counted_from_when_it_is_met(program: Program) -> None:
    counters = ThreadCounters(measurement_plan.plan("software"))
    counters.look([program.pid])
    program.begin("thread")
    wait_until(lambda: len(os.listdir(f"/proc/{program.pid}/task")) == 3)
    begun = time.monotonic_ns()
    counters.look([program.pid])
    program.begin("main")
    used = program.end()
    record = counters.finish()
    passed = time.monotonic_ns() - begun
    clock = counted(record, "task_clock")
    assert len(clock) == 3
    # What it did before may be most of it on a busy machine; two clocks tell how much that was.
    assert clock["count"].max() <= passed
    assert record["clocks"]["clock_ns"][0] >= used * 0.75


@needs_counters
def test_of_a_process_met_late_it_is_known_what_it_had_used(program: Program) -> None:
    counters = ThreadCounters(measurement_plan.plan("software"))
    counters.look([os.getpid()])
    used = program.compute("main")
    counters.look([os.getpid(), program.pid])
    record = counters.finish()
    clocks = pd.DataFrame(record["clocks"]).set_index("pid")
    assert clocks.loc[program.pid, "before_ns"] >= used * 0.75
    assert clocks.loc[os.getpid(), "before_ns"] == 0


@needs_counters
def test_a_process_that_has_ended_has_no_clock_but_counts(program: Program) -> None:
    counters = ThreadCounters(measurement_plan.plan("software"))
    counters.look([program.pid])
    used = program.compute("main")
    program.close()
    record = counters.finish()
    assert record["clocks"]["clock_ns"] == [-1]
    assert counted(record, "task_clock")["count"].max() >= used * 0.75


def of(kernel: Kernel, events: Sequence[Event] = (*HARDWARE, *SOFTWARE)) -> ThreadCounters:
    plan = MeasurementPlan(
        perf_event.spell(events), {"uarch": "amd_zen5", "metrics": {}}, [], ["n"]
    )
    return ThreadCounters(plan, lambda group, _: kernel.open(group))


def test_software_and_hardware_are_groups_of_their_own() -> None:
    kernel = Kernel(running=0.5)
    counters = of(kernel)
    counters.look([os.getpid()])
    counters.look([os.getpid()])
    assert kernel.opened[:2] == [["task_clock", "page_faults"], ["cycles", "instructions"]]
    threads = len(kernel.opened) // 2
    record = counters.finish()
    assert kernel.still_open == 0
    assert record["events"] == ["task_clock", "page_faults", "cycles", "instructions"]
    assert record["notes"] == ["n"]
    for event, share in (("task_clock", 1.0), ("cycles", 0.5)):
        counts = counted(record, event)
        assert len(counts) == threads
        assert (counts["running_ns"] == share * counts["enabled_ns"]).all()


@pytest.mark.parametrize(
    ("name", "code", "left"),
    [
        ("cycles", errno.EBUSY, ["task_clock", "page_faults"]),
        ("task_clock", errno.EACCES, ["cycles", "instructions"]),
    ],
)
def test_a_group_that_is_refused_leaves_the_other_one(
    name: str, code: int, left: list[str]
) -> None:
    kernel = Kernel(errors={name: code})
    counters = of(kernel)
    counters.look([os.getpid()])
    record = counters.finish()
    assert {record["events"][place] for place in record["counts"]["event"]} == {*left}
    assert os.strerror(code) in record["notes"][-1]
    assert name in record["notes"][-1]
    assert kernel.still_open == 0


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.EMFILE, "(ulimit -Hn)"),
        (errno.ENFILE, "(sysctl fs.file-max)"),
        (errno.EACCES, "sudo or the capability CAP_PERFMON would allow it"),
        (errno.ESRCH, "n"),
    ],
)
def test_why_threads_are_not_counted_is_told_and_ended_ones_are_not(code: int, words: str) -> None:
    counters = of(Kernel(refusal=code))
    counters.look([os.getpid()])
    record = counters.finish()
    assert not record["counts"]["count"]
    assert words in record["notes"][-1]
    if code != errno.ESRCH:  # its time was not counted: there is nothing to compare its clock with
        assert record["clocks"]["clock_ns"] == [-1]


def test_at_most_so_many_threads_are_counted_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_counters, "_MOST_THREADS", 0)
    counters = of(Kernel())
    counters.look([os.getpid()])
    assert "lotus counts 0 threads at a time at most" in counters.finish()["notes"][-1]


def test_a_thread_that_was_left_out_is_counted_once_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks: dict[int, list[int]] = {1: [1, 2, 3]}
    real = os.listdir

    def listed(path: str) -> list[str]:
        return [str(tid) for tid in tasks[1]] if path == "/proc/1/task" else real(path)

    monkeypatch.setattr(thread_counters.os, "listdir", listed)
    monkeypatch.setattr(thread_counters, "_cpu_ns", lambda pid: 0)
    monkeypatch.setattr(thread_counters, "_MOST_THREADS", 2)
    kernel = Kernel()
    counters = of(kernel)
    counters.look([1])
    counters.look([1])
    assert kernel.still_open == 2 * 2
    tasks[1] = [1, 3, 4]
    counters.look([1])
    assert kernel.still_open == 2 * 2
    record = counters.finish()
    assert {*record["counts"]["tid"]} == {1, 2, 3}
    assert record["clocks"]["clock_ns"] == [-1]
    never, waited = record["notes"][-2:]
    assert never.startswith("1 of 4 threads were not counted: lotus counts 2 threads")
    assert waited.startswith("1 of 4 threads were counted only once others had ended: lotus")


def test_counters_of_ended_threads_are_closed_and_their_counts_kept() -> None:
    kernel = Kernel()
    counters = of(kernel)
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    tid = thread.native_id
    counters.look([os.getpid()])
    before = kernel.still_open
    go.set()
    thread.join()
    wait_until(lambda: str(tid) not in os.listdir("/proc/self/task"))
    counters.look([os.getpid()])
    assert kernel.still_open <= before - 2
    assert tid in counters.finish()["counts"]["tid"]


# A program with more threads than lotus has descriptors, watched by one with a low limit.
FEW = """
import os, resource, sys
from lotus.attach.threads.thread_counters import ThreadCounters
from lotus.attach.threads.thread_readings import ThreadReadings
from lotus.attach.watched_processes import Observation, WatchedProcess
from lotus.recording.measurement_plan import MeasurementPlan
class Group:
    def __init__(self, events, tid):
        self.fds = [os.open(os.devnull, os.O_RDONLY) for _ in events]
    def read(self):
        return b""
    def unpack(self, reading):
        return 1, 1, [1] * len(self.fds)
    def close(self):
        for fd in self.fds:
            os.close(fd)
limit, pids = int(sys.argv[1]), [int(pid) for pid in sys.argv[3:]]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
counters = ThreadCounters(MeasurementPlan(sys.argv[2], {}), Group)
session = Observation.__new__(Observation)
session.readings = ThreadReadings()
processes = [WatchedProcess(pid, pid, -1, -1) for pid in pids]
for _ in range(2):
    counters.look(pids)
    for process in processes:
        Observation.read(session, process)
record = counters.finish()
print([process.alive for process in processes], {*pids} <= {*record["counts"]["tid"]})
print(record["notes"])
"""
IDLE = """
import threading, time
for _ in range(60):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("limit", [64, 100])
def test_where_descriptors_run_out_the_program_still_lives(limit: int) -> None:
    idle = [
        subprocess.Popen([sys.executable, "-c", IDLE], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        for process in idle:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        words = [sys.executable, "-c", FEW, str(limit), perf_event.spell(SOFTWARE)]
        words += [str(process.pid) for process in idle]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    finally:
        for process in idle:
            process.kill()
            process.communicate()
    first, notes = done.stdout.splitlines()
    assert first == "[True, True] True"
    assert f"lotus may open {limit} files at most" in notes


def test_where_the_kernel_counts_nothing_a_note_says_why() -> None:
    counters = ThreadCounters(MeasurementPlan(None, {}, [], ["refused"]))
    counters.look([os.getpid()])
    record = counters.finish()
    assert record["events"] == []
    assert record["notes"] == ["refused"]


def test_a_reading_that_fails_is_no_count() -> None:
    class Silent(Counters):
        def read(self) -> bytes:
            return b""

        def unpack(self, reading: bytes) -> tuple[int, int, list[int]]:
            raise ValueError("the group could not be counted")

    kernel = Kernel()
    plan = MeasurementPlan(perf_event.spell(SOFTWARE), {"uarch": "generic"})
    counters = ThreadCounters(plan, lambda group, _: Silent(kernel, group, None, 1.0))
    counters.look([os.getpid()])
    assert not counters.finish()["counts"]["count"]
