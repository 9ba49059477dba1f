"""What a signal's handler raises comes where the program waits, and a second Ctrl-C always."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lotus.inside.common.control import deferred_interrupts
from lotus.inside.tune.candidates.processes import teardown
from lotus.inside.tune.candidates.processes.watchdog import CandidateError, Watchdog, held


@pytest.fixture
def ours() -> Iterator[None]:
    def handler(number: int, frame: object) -> None:
        deferred_interrupts.stop(KeyboardInterrupt())

    before = signal.signal(signal.SIGINT, deferred_interrupts.ours(handler))
    yield
    signal.signal(signal.SIGINT, before)
    deferred_interrupts.forget()


def test_it_is_kept_until_the_next_wait(ours: None) -> None:
    signal.raise_signal(signal.SIGINT)  # nowhere allowed: nothing is raised
    with pytest.raises(KeyboardInterrupt), deferred_interrupts.breakable():
        raise AssertionError("not reached")
    with deferred_interrupts.breakable():  # once
        pass


def test_it_is_kept_back_where_workers_start(ours: None) -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), deferred_interrupts.breakable():  # noqa: PT012
        with held(signal.SIGINT):
            signal.raise_signal(signal.SIGINT)
            reached.append("started")
        reached.append("not here")
    assert reached == ["started"]
    with (  # noqa: PT012
        pytest.raises(KeyboardInterrupt),
        deferred_interrupts.breakable(),
        deferred_interrupts.kept_back(),
    ):
        signal.raise_signal(signal.SIGINT)
        reached.append("on the way")
        with deferred_interrupts.let_come():
            reached.append("not here")
    assert reached == ["started", "on the way"]


@pytest.mark.parametrize("waits", [True, False])
def test_a_watch_raises_where_it_is_waited(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "lotus.inside.tune.candidates.processes.watchdog._FORCE_S", 60.0 if waits else 0.2
    )
    monkeypatch.setattr("lotus.inside.tune.candidates.processes.watchdog._AGAIN_S", 0.01)
    watch = Watchdog(0.05, "this")
    reached = []

    def wait() -> None:
        with deferred_interrupts.only_waits():
            while not watch.reason or (waits and len(reached) < 20):  # sent more than once
                time.sleep(0.01)
                reached.append("between")
            if waits:
                reached.append("wait")
                with deferred_interrupts.let_come():
                    time.sleep(60)
            time.sleep(60)  # stuck outside of any wait

    with pytest.raises(CandidateError, match=r"this took longer than 0\.05 s"):
        watch.run(wait)
    assert ("wait" in reached) == waits
    assert not deferred_interrupts.between_waits()


def test_a_second_ctrl_c_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(deferred_interrupts.time, "monotonic", lambda: now[0])
    reached = []

    def interrupted() -> None:
        with held(signal.SIGINT):
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)  # a launcher passes the same one on
            reached.append("held")
            now[0] += 1
            signal.raise_signal(signal.SIGINT)
            reached.append("not here")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        signal.signal(signal.SIGINT, before)
    assert reached == ["held"]


def test_a_queue_that_was_stopped_as_its_thread_started_is_closed() -> None:
    queue: Any = multiprocessing.get_context("fork").Queue()
    queue.put(1)
    assert queue.get() == 1
    thread = queue._thread
    queue._close.cancel()
    queue._close = None  # as where Ctrl-C came right after the thread's start
    teardown._close(queue)
    thread.join()
    assert not thread.is_alive()


def test_a_queue_whose_lock_nobody_holds_does_not_hinder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teardown, "_THREAD_S", 0.1)
    queue: Any = multiprocessing.get_context("fork").Queue()
    queue.put(1)
    assert queue.get() == 1
    feeder = queue._thread  # other tests' queues may have theirs
    while queue._notempty._waiters == []:
        time.sleep(0.001)
    queue._notempty.acquire()  # and Ctrl-C came before it was released
    teardown._bounded(lambda: teardown._close(queue))
    assert any(thread.name == "lotus-end" for thread in threading.enumerate())
    queue._notempty.release()
    while feeder.is_alive() or any(thread.name == "lotus-end" for thread in threading.enumerate()):
        time.sleep(0.001)


def test_workers_start_with_ctrl_c_blocked() -> None:
    from lotus.inside.tune.candidates.loading.candidate_loader import _without_interrupts

    read, write = os.pipe()
    with _without_interrupts():
        pid = os.fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGINT)
            os.write(write, b"alive")
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    assert os.read(read, 10) == b"alive"
    os.close(read)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
