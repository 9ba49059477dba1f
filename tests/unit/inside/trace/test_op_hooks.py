"""The hooks of operations: what one costs that is not recorded, and those of other threads."""

import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from lotus.inside.trace.log import state_page
from lotus.inside.trace.log.op_table import Definitions
from lotus.inside.trace.native.native_hooks import PYTHON
from tests.unit.called_functions import called
from tests.unit.fetches import Fetches, Numbers, broken_into

THREADS, EACH = 4, 5000


def calls(function: Callable[[], object]) -> int:
    """How many functions are called until it returns, built-in ones included."""
    return len(called(function, built_in=True))


@pytest.mark.parametrize(
    ("level", "hooks"), [("op", PYTHON), ("op", "c"), ("op+cpu", PYTHON)], ids=str
)
@pytest.mark.parametrize("option", [{"every": "2"}, {"batches": "0:1"}, {"max_log": "1000000"}])
def test_an_operation_that_is_not_recorded_calls_nothing_but_the_original(
    tmp_path: Path, level: str, hooks: str, option: dict[str, str]
) -> None:
    fetches = Fetches(tmp_path / "R", level=level, hooks=hooks, **option)
    recorder, counted = fetches.recorder, []
    data = Numbers(lambda index: counted.append(calls(lambda: data.transform(1))))
    alone = calls(lambda: data.transform(1))
    fetch = fetches.fetcher(data, loader=0)
    fetch(0, [7])
    if recorder.config.max_log:
        recorder.config.max_log, recorder._checked_ns = 1, 0  # the log is now too large
    recorder.flush_batch(1)
    fetch(1, [7])
    recorded, left_out = counted
    if hooks == PYTHON:
        assert left_out == alone + 2  # operations, each by a stand-in
        assert recorded > left_out
    else:
        assert recorded == left_out == alone
    assert set(fetches.end().ops["batch"]) == {0}


def test_operations_of_threads_keep_their_own_cpu_times(tmp_path: Path) -> None:
    fetches = Fetches(tmp_path / "R", level="op+cpu")
    recorder = fetches.recorder
    number = recorder.definitions.define("beside")
    gate, before = threading.Barrier(THREADS), sys.getswitchinterval()

    def work(which: int) -> None:
        gate.wait()
        for start in range(which * EACH + 1, (which + 1) * EACH + 1):
            recorder.add_loose(start, start + 1, number, (start, 0, 0, 0, 0, 0))

    threads = [threading.Thread(target=work, args=(which,)) for which in range(THREADS)]
    sys.setswitchinterval(1e-7)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert recorder.on
    ops = fetches.end().ops
    assert sorted(ops["start_ns"]) == list(range(1, THREADS * EACH + 1))
    assert (ops["cpu_ns"] == ops["start_ns"]).all()


def test_what_two_threads_write_at_once_is_written_once(tmp_path: Path) -> None:
    fetches = Fetches(tmp_path / "R", level="op+cpu")
    recorder = fetches.recorder
    number = recorder.definitions.define("beside")
    added = 0

    def add() -> None:
        nonlocal added
        added += 1
        recorder.add_loose(added, added + 1, number, (added, 0, 0, 0, 0, 0))
        recorder.add_sync(added, added, added + 1, added + 2, 1)
        recorder.sends.append((0, added, added, 1, 1, 1, 1, 1))

    def flush() -> None:
        recorder.flush_loose()
        recorder.flush_later()
        recorder._write(recorder._sends_frame())

    def other() -> None:
        if recorder.log._lock._is_owned():  # type: ignore[attr-defined]
            return  # it would wait for us
        thread = threading.Thread(target=lambda: (flush(), add(), add()))
        thread.start()
        thread.join()

    moment, reached = 0, True
    while reached:
        add()
        reached = broken_into(moment, other, flush)
        moment += 1
    flush()
    assert moment > 50
    assert recorder.on
    run = fetches.end()
    assert not len(run.lost)
    expected = list(range(1, added + 1))
    assert sorted(run.ops["start_ns"]) == expected
    assert (run.ops["cpu_ns"] == run.ops["start_ns"]).all()
    assert sorted(run.syncs["start_ns"]) == expected
    (process,) = run._assembly.processes
    sends = process.log.arrays("batch", ("sends",))["sends"]
    assert sorted(sends["start_ns"].tolist()) == expected


@pytest.mark.parametrize("raises", [False, True], ids=["thread", "handler"])
def test_operations_that_are_defined_at_once_have_numbers_of_their_own(raises: bool) -> None:
    """By another thread, or by a handler that then raises, at every instruction of ours."""
    definitions = Definitions()
    numbers: dict[str, int] = {}
    definitions_written: list[dict[str, object]] = []

    def define(name: str, last: bool = False) -> None:
        numbers[name] = definitions.define(name)
        definitions_written.extend(definitions.unwritten())
        if last and raises:
            raise TimeoutError

    moment, reached = 0, True
    while reached:
        this, that = partial(define, f"this {moment}"), partial(define, f"that {moment}", True)
        try:
            reached = broken_into(moment, that, this)
        except TimeoutError:
            this()
        moment += 1
    assert moment > 5
    assert len(set(numbers.values())) == len(numbers)
    if not raises:  # else what was taken may not have been written, and all is defined anew
        definitions_written.extend(definitions.unwritten())
        assert {definition["name"] for definition in definitions_written} == set(numbers)
    definitions.forget_written()
    known = {definition["id"]: definition["name"] for definition in definitions.unwritten()}
    assert all(known[number] == name for name, number in numbers.items())


@pytest.mark.parametrize("hooks", [PYTHON, "c"])
@pytest.mark.parametrize("ends", [False, True])
def test_a_thread_that_enters_a_fetch_meanwhile_has_rows_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool, hooks: str
) -> None:
    # GIVEN a thread whose fetch begins, and ends or not, while another one's is about to
    fetches = Fetches(tmp_path / "R", hooks=hooks)
    recorder, hold, begun = fetches.recorder, threading.Event(), threading.Event()
    read, here = recorder.read, threading.get_ident()

    def between(index: int) -> None:
        begun.set()
        assert ends or hold.wait(60)

    fetch = fetches.fetcher(Numbers(between), loader=0)

    def in_thread() -> None:
        fetch(0, [7, 8, 9])
        recorder.flush_batch(1)

    other = threading.Thread(target=in_thread)

    def interrupted() -> tuple[int, ...]:
        if threading.get_ident() == here and not begun.is_set():
            other.start()
            assert begun.wait(60)
            if ends:
                other.join()
        return read()

    monkeypatch.setattr(recorder, "read", interrupted)
    # WHEN that one fetches as well
    assert fetches.fetcher(Numbers(), loader=1)(0, [1, 2]) == (4, 5)
    hold.set()
    other.join()
    # THEN each record holds its own samples and operations
    assert (recorder.depth, recorder.gate.owner, recorder.claims) == (0, 0, {})
    assert not recorder.beside
    recorder.flush_batch(1)
    run = fetches.end()
    samples = run.samples.groupby("loader")["sample"].apply(list).to_dict()
    assert samples == {0: [7, 8, 9], 1: [1, 2]}
    operations = run.ops.groupby(["loader", "sample"])["operation"].agg(list).to_dict()
    assert operations == {
        (loader, sample): ["Add[0]", "Add[1]"] * times
        for loader, sample, times in ((0, 7, 2), (0, 8, 2), (0, 9, 2), (1, 1, 1), (1, 2, 1))
    }
    of_thread = run.ops.groupby("loader")["tid"].unique()
    assert all(len(tids) == 1 for tids in of_thread)
    assert of_thread[1][0] == os.getpid() != of_thread[0][0]


@pytest.mark.parametrize(
    ("level", "hooks"), [("op", PYTHON), ("op", "c"), ("op+cpu", PYTHON)], ids=str
)
def test_the_state_page_has_an_operation_only_while_it_runs(
    tmp_path: Path, level: str, hooks: str
) -> None:
    """What the data set does between operations is its own code."""
    fetches = Fetches(tmp_path / "R", level=level, hooks=hooks)
    words = fetches.recorder.page.words
    found: list[int] = []

    def find() -> None:
        found.append(sum(word != 0 for word in words[state_page.OPERATIONS :].tolist()))

    class Finding:
        def __call__(self, value: int) -> int:
            find()
            return value

    data = Numbers(lambda index: find())  # between two operations
    data.transform = Finding()
    fetches.fetcher(data, loader=0)(0, [7])
    fetches.end()
    assert found == [1, 0, 1]
