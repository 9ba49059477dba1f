"""Sending: what its advice is, by what a batch is made of and what else it could cost."""

from types import SimpleNamespace

import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.verdict.verdict import Cause, verdict
from tests.unit.simulated import Plan


def first_cause(run: SimpleNamespace, pipe: int, size: int) -> Cause:
    run.batches["send_bytes"], run.batches["bytes"] = pipe, size
    return verdict(scopes(run)[0]).causes[0]


def sent(pickle: float, unpickle: float, making: float = 1.0) -> SimpleNamespace:
    return Plan(
        batches=100, operations={"Read": making}, pickle=pickle, write=1.0, unpickle=unpickle
    ).run()


def test_many_small_tensors_are_to_be_put_together() -> None:
    cause = first_cause(sent(20.0, 40.0), pipe=30_000, size=16_000)
    assert cause.kind == "send"
    assert "many small parts" in cause.title
    assert "torch.cat" in cause.advice


def test_many_small_tensors_beside_a_picture_are_to_be_put_together() -> None:
    cause = first_cause(sent(20.0, 40.0), pipe=14_000, size=400_000)
    assert "many small parts" in cause.title
    assert "longer than copying 391 KiB does" in cause.advice
    # Of which copying alone takes as long, they are no cause.
    assert "many small parts" not in first_cause(sent(20.0, 40.0), 14_000, 20_000_000).title


def test_tensors_that_fill_the_pipe_are_not_taken_for_python_objects() -> None:
    tensors = first_cause(sent(20.0, 40.0), pipe=80_000, size=10_000)
    assert "torch.cat" in tensors.advice
    objects = first_cause(sent(20.0, 40.0), pipe=4_000_000, size=3_000_000)
    assert "return torch tensors" in objects.advice


def test_no_workers_are_advised_in_words_wherever_they_are_in_data() -> None:
    objects = first_cause(sent(2.0, 400.0), pipe=130_000, size=100_000)
    assert objects.remedy.setting == {"num_workers": 0}
    assert "Or do without workers: making a batch takes" in objects.advice
    larger = first_cause(sent(2.0, 400.0), pipe=4_000_000, size=3_000_000)
    assert not larger.remedy.setting
    assert "without workers" not in larger.advice


def test_workers_that_the_code_needs_are_not_left_out() -> None:
    for pipe, size in ((130_000, 100_000), (400, 16_000)):
        run = sent(2.0, 400.0)
        run.loaders["workers_needed_at"] = "train.py:7"
        cause = first_cause(run, pipe=pipe, size=size)
        assert not cause.remedy.setting
        assert "without workers" not in cause.advice
        assert "num_workers=0" not in cause.advice


def test_workers_that_are_kept_are_left_out_with_the_workers() -> None:
    run = sent(2.0, 40.0)
    run.loaders["persistent_workers"] = True
    advice = first_cause(run, pipe=400, size=16_000).advice
    assert "set num_workers=0, without persistent_workers, which avoids sending." in advice


def test_a_batch_that_is_made_sooner_than_received_needs_no_worker() -> None:
    cause = first_cause(sent(2.0, 40.0), pipe=400, size=16_000)
    assert "num_workers=0" in cause.advice
    assert cause.remedy.setting == {"num_workers": 0}
    expected = cause.remedy.expected
    # 4.7 ms of making and 1 ms of step, where 41 ms of unpickling and step set the pace; the replay
    # counts pickling as making.
    assert expected.low <= expected.gain <= expected.high
    assert 3.0 < expected.gain <= 41 / 5.7


@pytest.mark.parametrize(("making", "size"), [(20.0, 16_000), (1.0, 8 << 20)])
def test_costly_or_large_batches_keep_their_workers(making: float, size: int) -> None:
    cause = first_cause(sent(2.0, 40.0 + 4 * making, making), pipe=400, size=size)
    assert cause.kind == "send"
    assert not cause.remedy.setting


@pytest.mark.parametrize(("making", "leaves_workers"), [(1.0, True), (2.0, True), (4.0, False)])
def test_the_cpu_time_of_receiving_decides_where_others_have_the_cores(
    making: float, leaves_workers: bool
) -> None:
    # GIVEN batches that take long to arrive, also because others have the cores
    run = sent(0.2, 40.0, making)
    run.batches["run_delay_ns"] = 0.5 * run.batches["fetch_ns"]
    run.batches["cpu_ns"] = run.batches["process_cpu_ns"] = 0.5 * run.batches["fetch_ns"]
    for part in ("wait", "step"):
        run.waits[f"{part}_run_delay_ns"] = 0
        for name in ("cpu", "process_cpu"):
            run.waits[f"{part}_{name}_ns"] = 0.15 * run.waits[f"{part}_ns"]
    # THEN no workers are proposed if making them takes clearly less than receiving does on a core
    advice = first_cause(run, pipe=400, size=16_000).advice
    assert ("set num_workers=0" in advice) == leaves_workers
