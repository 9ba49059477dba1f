"""The time in which a process was stopped, and which spans overlap with it."""

import numpy as np

from lotus.attach.processes.stopped_time import StoppedTime


def looked_at(*looks: tuple[int, int, bool]) -> StoppedTime:
    result = StoppedTime()
    for pid, now, stopped in looks:
        result.look(pid, now, stopped)
    return result


def test_it_lasts_from_the_look_before_to_the_one_that_finds_it_go_on() -> None:
    stopped = looked_at((7, 10, False), (7, 20, True), (7, 30, True), (7, 40, False))
    assert stopped.joined == [(10, 40)]
    begin, end = np.array([0, 5, 35, 40]), np.array([10, 11, 45, 50])
    assert stopped.overlaps(begin, end).tolist() == [False, True, True, False]
    assert stopped.overlaps(begin, end, margin_ns=1).tolist() == [True] * 4


def test_what_is_stopped_at_the_end_counts_until_the_last_look() -> None:
    assert looked_at((7, 10, False), (7, 20, True), (7, 30, True)).joined == [(10, 30)]


def test_processes_stopped_side_by_side_are_one_span() -> None:
    stopped = looked_at(
        (7, 10, False), (8, 12, False), (7, 20, True), (8, 22, True), (7, 30, False), (8, 32, False)
    )
    assert stopped.joined == [(10, 32)]
    assert stopped.sentence.startswith("processes 7, 8 were stopped (SIGSTOP) for ")


def test_nothing_is_said_of_processes_that_were_not_stopped() -> None:
    stopped = looked_at((7, 10, False), (7, 20, False))
    assert (stopped.joined, stopped.sentence) == ([], "")
    assert stopped.overlaps(np.array([0]), np.array([30])).tolist() == [False]
