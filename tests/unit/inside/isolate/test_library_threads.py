"""The CPU time of threads that libraries start is told from that of Python's threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from lotus.inside.isolate.library_threads import LibraryThreads

BUSY_NS = 100_000_000


@contextmanager
def several_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_threads_of_a_library_are_counted() -> None:
    matrix = torch.ones(600, 600)
    with several_threads():
        counted = LibraryThreads()
        for _ in range(10_000):
            matrix @ matrix
            used = counted.used_ns()
            assert used is not None
            if used[1] > BUSY_NS:
                break
    own_ns, library_ns = used
    assert library_ns > BUSY_NS
    assert 0.2 * own_ns < library_ns < 2 * own_ns + BUSY_NS


def test_threads_of_python_are_not() -> None:
    done = threading.Event()

    def compute() -> None:
        start = time.thread_time_ns()
        while time.thread_time_ns() - start < BUSY_NS:
            pass
        spent.set()
        done.wait()

    spent = threading.Event()
    counted = LibraryThreads()
    thread = threading.Thread(target=compute)
    thread.start()
    spent.wait()
    used = counted.used_ns()
    done.set()
    thread.join()
    assert used is not None
    assert used[1] < BUSY_NS / 2
