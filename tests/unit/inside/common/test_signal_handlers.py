"""A signal handler of the program raises within our hooks, once at every instruction where Python
runs handlers: what is recorded afterwards is whole, and what was in hand is whole or missing.
"""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from lotus.inside.common import perf_event
from tests.unit.fetches import Fetches, Numbers, broken_into

SOFTWARE = "task_clock|1|0x1|0x0|uk,page_faults|1|0x2|0x0|uk"


class Late(Exception):
    """What the handler raises."""


def interrupted(moment: int, function: Callable[[], object]) -> bool:
    """Call the function; whether a handler raised before it returned."""

    def handler() -> None:
        raise Late

    try:
        return broken_into(moment, handler, function)
    except Late:
        return True


@pytest.fixture(params=["op", "in C", "op+cpu", "counters"])
def fetches(request: pytest.FixtureRequest, tmp_path: Path) -> Fetches:
    if request.param == "in C":
        return Fetches(tmp_path / "R", hooks="c")
    if request.param != "counters":
        return Fetches(tmp_path / "R", level=request.param)
    try:
        perf_event.EventGroup(perf_event.parse(SOFTWARE), 0, False, 500).close()
    except OSError as error:
        pytest.skip(f"software events cannot be counted here: {error}")
    return Fetches(tmp_path / "R", level="op+cpu", counters=SOFTWARE)


def test_at_every_instruction(fetches: Fetches) -> None:
    recorder = fetches.recorder
    inner = fetches.fetcher(Numbers(), loader=1)
    caught = []

    def between(index: int) -> None:
        """The data set reads of another loader, and bears that it fails."""
        try:
            inner(moment, [0])
        except Late:
            caught.append(moment)

    outer = fetches.fetcher(Numbers(between), loader=0)
    moment, ended = 1 << 20, False
    outer(moment, [5])  # opens the counters
    recorder.flush_batch(1)
    moment = 0
    while not ended:
        ended = not interrupted(moment, partial(outer, 2 * moment, [5]))
        assert (recorder.depth, recorder.gate.owner, recorder.gate.shut) == (0, 0, False), moment
        assert not any(recorder.buffers), moment
        recorder.flush_batch(1)
        assert outer(2 * moment + 1, [5, 6]) == (11, 12)
        recorder.flush_batch(1)
        moment += 1
    assert recorder.on
    assert moment > 100
    assert len(caught) > 20
    run = fetches.end()
    assert not run.lost["what"].str.contains("cut|damage|fault").any()
    # Batches after a moment are whole.
    whole = ["Add[0]", "Add[1]"]
    ops = run.ops[run.ops["loader"] == 0]
    after = ops[ops["batch"] % 2 == 1]
    assert after.groupby(["batch", "position"])["operation"].agg(list).tolist() == (
        [whole * 2] * 2 * moment
    )
    # So are those in which the program caught it in the inner fetch, if they are there.
    for moment in caught:
        of_batch = ops[ops["batch"] == 2 * moment]
        operations = of_batch.groupby("position")["operation"].agg(list).tolist()
        assert operations in ([], [whole * 2]), moment
    if recorder.counters is not None:
        counted = run.counters[(run.counters["loader"] == 0) & (run.counters["batch"] % 2 == 1)]
        assert (counted["kind"] == "operation").sum() == len(after)
        assert counted["task_clock"].notna().all()


def test_an_operation_that_was_broken_off_shifts_no_counts(fetches: Fetches) -> None:
    recorder, broken = fetches.recorder, []
    if recorder.config.hooks == "c":
        pytest.skip("in C no handler runs between two steps of ours")

    def between(index: int) -> None:
        """The program goes on after an operation that took too long."""
        if index == 5:
            broken.append(interrupted(len(broken), lambda: data.transform(1)))

    data = Numbers(between)
    fetch = fetches.fetcher(data, loader=0)
    while not broken or broken[-1]:
        assert fetch(len(broken), [4, 5, 6]) == (10, 11, 12)
        recorder.flush_batch(1)
    assert len(broken) > 8
    run = fetches.end()
    assert len(run.batches) == len(broken)
    (process,) = run._assembly.processes
    batches, counts = process.log.fixed["batch"], process.log.fixed["counts"]
    # Two operations four times in three samples, and up to two that may be broken off.
    assert set(batches["n_ops"].tolist()) == {12, 13, 14}
    if recorder.config.level == 3:
        assert batches["n_ops_cpu"].tolist() == batches["n_ops"].tolist()
    if recorder.counters is not None:
        assert counts["n_edges"].tolist() == batches["n_ops"].tolist()


def test_at_every_instruction_of_a_fetch_beside_another_thread_s(tmp_path: Path) -> None:
    fetches, begun, hold = Fetches(tmp_path / "R"), threading.Event(), threading.Event()
    recorder = fetches.recorder

    def between(index: int) -> None:
        begun.set()
        assert hold.wait(600)

    other = threading.Thread(target=fetches.fetcher(Numbers(between), loader=0), args=(0, [1]))
    other.start()
    assert begun.wait(60)
    fetch = fetches.fetcher(Numbers(), loader=1)
    moment, ended = 0, False
    while not ended:
        ended = not interrupted(moment, partial(fetch, 2 * moment, [5]))
        assert (recorder.here.hand.fetch, len(recorder.beside)) == (None, 0), moment
        assert (recorder.depth, recorder.gate.shut) == (1, False), moment
        recorder.flush_batch(1)
        assert fetch(2 * moment + 1, [5, 6]) == (8, 9)
        recorder.flush_batch(1)
        moment += 1
    hold.set()
    other.join()
    assert recorder.on
    assert moment > 100
    # THEN the batches after a moment are whole
    run = fetches.end()
    ops = run.ops[(run.ops["loader"] == 1) & (run.ops["batch"] % 2 == 1)]
    per_sample = ops.groupby(["batch", "position"])["operation"].agg(list).tolist()
    assert per_sample == [["Add[0]", "Add[1]"]] * 2 * moment
