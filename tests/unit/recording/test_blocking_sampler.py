"""Real processes that are blocked in something, looked at from outside."""

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lotus.inside.common import process_stat
from lotus.inside.trace.log import state_page
from lotus.reading import recorded_notes
from lotus.reading.launcher import launcher_record
from lotus.recording import blocking_sampler
from lotus.recording.blocking_sampler import BlockingSampler
from lotus.recording.looks import state_pages
from lotus.recording.looks.state_pages import StatePages
from lotus.recording.stacks.py_spy_child import PySpyChild
from tests.waiting import wait_until

BLOCKED = {
    "sleep": "import time; time.sleep(1000)",
    "lock": "import threading as t; l = t.Lock(); l.acquire(); l.acquire()",
    "shared-lock": "import multiprocessing as m; l = m.Lock(); l.acquire(); l.acquire()",
    "socket": "import socket as s; a = s.create_server(('127.0.0.1', 0)); a.accept()",
    "local-socket": "import socket as s; a, b = s.socketpair(); a.recv(1)",
    "pipe": "import os; r, w = os.pipe(); os.read(r, 1)",
    "events": "import os, select; r, w = os.pipe(); select.select([r], [], [])",
    "child": "import os, time; os.fork() and os.wait(); time.sleep(1000)",
    "computing": "\nwhile True: pass",
}


def page(folder: Path, pid: int, phase: int = state_page.FETCH, **words: int) -> Path:
    """The state page of a worker that is in its operation 3."""
    content = memoryview(bytearray(state_page.SIZE)).cast("q")
    content[state_page.W_MAGIC], content[state_page.W_PID] = state_page.MAGIC, pid
    content[state_page.W_PHASE], content[state_page.W_SINCE] = phase, 100
    content[state_page.W_SAMPLE_SINCE] = 200
    content[state_page.word_of(3)] = words.get("began", 300)
    (folder / "state").mkdir(exist_ok=True)
    path = folder / "state" / f"{pid}.state"
    path.write_bytes(content)
    return path


def looked(folder: Path, done: Callable[[BlockingSampler], bool]) -> dict[str, object]:
    """What is written of looks that went on until `done`."""
    with BlockingSampler(folder) as sampler:
        while not done(sampler) and sampler._thread.is_alive() and not sampler._problem:
            time.sleep(0.01)
    record: dict[str, object] = json.loads((folder / blocking_sampler.NAME).read_text())
    if "kernel does not" in str(record["problem"]):
        pytest.skip(str(record["problem"]))
    assert record["problem"] == ""
    return record


@pytest.mark.parametrize("reason", BLOCKED)
def test_what_a_process_is_blocked_in(tmp_path: Path, reason: str) -> None:
    with subprocess.Popen([sys.executable, "-c", BLOCKED[reason]], start_new_session=True) as child:
        try:
            page(tmp_path, child.pid)
            # While Python starts it is found in other things.
            record = looked(
                tmp_path, lambda sampler: sampler._looks.rows[child.pid, 0, 3, reason] >= 5
            )
        finally:
            os.killpg(child.pid, 9)
    rows = record["rows"]
    assert isinstance(rows, list)
    assert [row["looks"] >= 5 for row in rows if row["reason"] == reason] == [True]


def test_only_what_makes_batches_is_looked_at(tmp_path: Path) -> None:
    me = os.getpid()
    page(tmp_path, me, phase=state_page.IDLE).rename(tmp_path / "state" / "idle.state")
    page(tmp_path, 1).rename(tmp_path / "state" / "init.state")  # no child of ours
    (tmp_path / "state" / "torn.state").write_bytes(b"x")
    (tmp_path / "state" / "none.state").symlink_to("nowhere")
    page(tmp_path, me, phase=state_page.COLLATE).rename(tmp_path / "state" / "collate.state")
    record = looked(tmp_path, lambda sampler: sum(sampler._looks.rows.values()) >= 5)
    rows = record["rows"]
    assert isinstance(rows, list)
    assert {(row["pid"], row["operation"]) for row in rows} == {(me, -2)}


def test_before_the_first_operation_of_a_sample_it_is_the_data_sets_own_code(
    tmp_path: Path,
) -> None:
    page(tmp_path, os.getpid(), began=150)
    record = looked(tmp_path, lambda sampler: bool(sampler._looks.rows))
    rows = record["rows"]
    assert isinstance(rows, list)
    assert {row["operation"] for row in rows} == {-1}


def test_a_process_that_ends_is_no_fault(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        page(tmp_path, child.pid)
        path = page(tmp_path, os.getpid(), phase=state_page.IDLE)

        def done(sampler: BlockingSampler) -> bool:
            if sampler._looks.rows and child.poll() is None:
                child.kill()
                child.wait()
                page(tmp_path, os.getpid())
            return any(pid == os.getpid() for pid, *_ in sampler._looks.rows)

        record = looked(tmp_path, done)
    assert path.exists()
    assert record["problem"] == ""


def test_without_a_run_directory_nothing_fails(tmp_path: Path) -> None:
    with BlockingSampler(tmp_path / "gone"):
        pass
    assert not (tmp_path / "gone").exists()


def test_what_an_unseen_worker_computed_is_not_of_processes_that_are_kept(tmp_path: Path) -> None:
    main, worker, server = (os.getpid(), -1), 4242, 4243
    with BlockingSampler(tmp_path) as sampler:
        sampler._stats[main] = process_stat.read(main[0])
        sampler._kept._used[main] = {worker: (0, 2_000), server: (0, 300)}
        page(tmp_path, worker, phase=state_page.ENDED)  # it began and ended between two scans
    record = json.loads((tmp_path / blocking_sampler.NAME).read_text())
    assert [row[5] for row in record["children"] if row[0] == main[0]] == [300]


def test_how_long_a_main_process_had_no_core_is_noted_as_its_first_loop_begins(
    tmp_path: Path,
) -> None:
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("no schedstat here")
    with subprocess.Popen(
        [sys.executable, "-c", BLOCKED["sleep"]], start_new_session=True
    ) as child:
        try:
            path = page(tmp_path, child.pid, state_page.BETWEEN)
            content = memoryview(bytearray(path.read_bytes())).cast("q")
            content[state_page.W_WORKER] = -1

            def begun(sampler: BlockingSampler) -> bool:
                if (child.pid, -1) in sampler._times.processes and not sampler._delays:
                    content[state_page.W_PHASE] = state_page.STEP
                    with path.open("r+b") as file:  # a page is never truncated
                        file.write(content)
                return bool(sampler._delays)

            path.write_bytes(content)
            record = looked(tmp_path, begun)
        finally:
            os.killpg(child.pid, 9)
    children = record["children"]
    assert isinstance(children, list)
    (delay,) = (row[-1] for row in children if row[:2] == [child.pid, -1])
    assert delay >= 0


def test_a_mistake_of_ours_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise ValueError("wrong")

    monkeypatch.setattr(BlockingSampler, "_look", fail)
    page(tmp_path, os.getpid())
    with BlockingSampler(tmp_path) as sampler:
        sampler._thread.join()
    record = json.loads((tmp_path / blocking_sampler.NAME).read_text())
    assert record["problem"] == "ValueError: wrong"


def test_without_a_thread_the_record_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under `ulimit -u`: the program runs already, and must be waited for."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with BlockingSampler(tmp_path):
        pass
    record = json.loads((tmp_path / blocking_sampler.NAME).read_text())
    assert record["problem"].startswith("lotus could not start a thread")


def test_a_record_that_was_never_finished_says_so(tmp_path: Path) -> None:
    """As where lotus is killed: the program goes on, and the report tells what is missing."""
    path = tmp_path / blocking_sampler.NAME
    with BlockingSampler(tmp_path):
        problem = json.loads(path.read_text())["problem"]
        [note] = recorded_notes.notes(tmp_path, {"ranks": []}, [], launcher_record.read(tmp_path))
    assert note == problem
    assert "not known" in problem
    assert "it still runs or was killed" in problem
    assert json.loads(path.read_text())["problem"] == ""


def test_how_much_was_left_out_is_said(tmp_path: Path) -> None:
    most = blocking_sampler._MOST_ROWS
    with BlockingSampler(tmp_path) as sampler:
        sampler._looks.rows.update({(pid, 0, 1, "sleep"): 1 + (pid < most) for pid in range(6000)})
    record = json.loads((tmp_path / blocking_sampler.NAME).read_text())
    assert len(record["rows"]) == most == 5000
    assert record["problem"] == (
        "9.1% of the observations of what threads were blocked in are left out: "
        "1,000 rare combinations of process, operation and state"
    )


def test_a_process_that_goes_on_elsewhere_is_said_to_be_unseen(tmp_path: Path) -> None:
    """A daemon, or one whose number is that of another PID namespace."""
    path = page(tmp_path, 1)
    sampler = BlockingSampler(tmp_path)
    with sampler:
        wait_until(lambda: 1 in sampler._outside)
        assert sampler._problem == ""  # it may be a number of one that was killed
        content = bytearray(path.read_bytes())
        memoryview(content).cast("q")[state_page.W_SINCE] = 101
        path.write_bytes(content)
        wait_until(lambda: sampler._problem != "")
    record = json.loads((tmp_path / blocking_sampler.NAME).read_text())
    assert "not below lotus in the process tree" in record["problem"]


def test_without_descriptors_the_record_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(state_pages, "opened", refuse)
    page(tmp_path, os.getpid())
    with BlockingSampler(tmp_path) as sampler:
        wait_until(lambda: sampler._pages.problem != "")
    record = json.loads((tmp_path / blocking_sampler.NAME).read_text())
    assert "ulimit -n" in record["problem"]


def test_a_page_is_found_once_and_may_come_late(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    pages = StatePages(tmp_path / "state")
    for _ in range(3):
        pages.find()
    path = page(tmp_path, os.getpid())
    pages.find()
    assert list(pages.open) == [path.name]
    pages.close(path.name)
    path.with_name("a.state").touch()
    pages.find()
    assert list(pages.open) == ["a.state"]
    pages.close_all()


def test_a_kernel_that_hides_system_calls_still_tells_cpu_time_and_memory(
    tmp_path: Path,
) -> None:
    page(tmp_path, os.getpid())
    sampler = BlockingSampler(tmp_path)
    sampler._reasons.problem = "this kernel does not tell"
    with sampler:
        wait_until(lambda: bool(sampler._memory.rows))
    record = json.loads((tmp_path / blocking_sampler.NAME).read_text())
    assert record["problem"] == "this kernel does not tell"
    assert record["rows"] == []
    assert [row[1] for row in record["memory"]] == [os.getpid()]


def test_why_there_are_no_stacks_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking_sampler, "refusal_here", lambda: "forbidden")
    with BlockingSampler(tmp_path):
        pass
    assert launcher_record.read(tmp_path).no_stacks == "forbidden"


def test_both_helpers_are_interrupted_before_either_is_waited_for(tmp_path: Path) -> None:
    """Each takes up to a second to write what it has."""
    calls: list[str] = []

    class Sample(PySpyChild):
        def interrupt(self) -> None:
            calls.append("interrupt")

        def finish(self) -> None:
            calls.append("finish")

    sampler = BlockingSampler(tmp_path)
    sampler._own_code.sample = Sample(tmp_path / "own")
    sampler._pauses.sample = Sample(tmp_path / "pause")
    sampler._long_steps.sample = Sample(tmp_path / "long")
    with sampler:
        pass
    assert calls == ["interrupt"] * 3 + ["finish"] * 3


AT_PEER = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
open({told!r}, "w").write("127.0.0.1:%d" % server.getsockname()[1])
client.recv(1)
"""
AT_FILE = """
import os
open({told!r}, "w").write({fifo!r})
os.read(os.open({fifo!r}, os.O_RDWR), 1)
"""


@pytest.mark.parametrize(("reason", "code"), [("socket", AT_PEER), ("file", AT_FILE)])
def test_where_a_process_is_blocked(tmp_path: Path, reason: str, code: str) -> None:
    fifo, told = tmp_path / "fifo", tmp_path / "told"
    os.mkfifo(fifo)
    words = [sys.executable, "-S", "-c", code.format(fifo=str(fifo), told=str(told))]

    def done(sampler: BlockingSampler) -> bool:
        # Opening is of no place; nor is a socket while lists of connections were just read.
        where = child.pid, 3, reason, told.read_text() if told.exists() else ""
        return sampler._places._new.get(where, 0) >= 3

    with subprocess.Popen(words) as child:
        try:
            page(tmp_path, child.pid)
            record = looked(tmp_path, done)
        finally:
            child.kill()
    places = record["places"]
    assert isinstance(places, list)
    (row,) = [row for row in places if row["place"] == told.read_text()]
    assert (row["pid"], row["operation"], row["reason"]) == (child.pid, 3, reason)
    assert bool(row["file_system"]) == (reason == "file")
    assert record["places_elsewhere"] == 0


def test_secrets_in_paths_are_not_written(tmp_path: Path) -> None:
    with BlockingSampler(tmp_path) as sampler:
        sampler._places.add(7, 1, "file", "/data/api_key=abcdefgh123/\udcff")
    text = (tmp_path / blocking_sampler.NAME).read_text()
    assert json.loads(text)["places"][0]["place"].startswith("/data/api_key=***")
    assert text.isascii()


def test_places_that_did_not_fit_are_told(tmp_path: Path) -> None:
    with BlockingSampler(tmp_path) as sampler:
        sampler._places.add(7, 1, "socket", "10.0.0.1:80")
        sampler._places.elsewhere = 3
    record = json.loads((tmp_path / blocking_sampler.NAME).read_text())
    assert record["places_elsewhere"] == 3
    assert "left out for 75.0% of the looks at files and connections" in record["problem"]
