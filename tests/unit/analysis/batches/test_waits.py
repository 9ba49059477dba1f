"""Each wait is cut into phases that add up to it."""

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.batches.waits import PHASES, loop_times, paced, shared_out, wait_phases
from lotus.analysis.common.scope import scopes
from tests.unit.simulated import MS, Plan

WORKERS = pd.DataFrame(
    {"rank": [0], "pid": [7], "worker": [0], "loop_ns": [5 * MS], "ready_ns": [20 * MS]}
)


def batch(**changed: float) -> pd.DataFrame:
    """One batch awaited from 10 to 110 ms; times in milliseconds."""
    row = {
        "wait_start_ns": 10.0, "wait_ns": 100.0, "fetch_start_ns": 25.0, "fetch_ns": 50.0,
        "idle_ns": 2.0, "send_start_ns": 76.0, "pickle_ns": 10.0, "ready_ns": 86.0,
        "arrival_ns": 100.0,
    }  # fmt: skip
    row.update(changed)
    frame = pd.DataFrame({name: [value * MS] for name, value in row.items()})
    return frame.assign(rank=0, pid=7, worker=0, loader=0, epoch=0, batch=0)


def phases(frame: pd.DataFrame) -> dict[str, float]:
    table = wait_phases(frame, WORKERS)
    return {name: value / MS for name, value in table.iloc[0].items() if value}


def test_a_wait_is_cut_at_the_events_of_its_batch() -> None:
    assert phases(batch()) == pytest.approx(
        # ready at 20; asked again at 23; fetch 25 to 75; arrived at 100
        {"startup": 10, "making": 3 + 50, "index": 2, "sending": 25, "handover": 10}
    )


def test_what_passed_before_the_wait_does_not_count() -> None:
    frame = batch(wait_start_ns=90, wait_ns=30)
    assert phases(frame) == pytest.approx({"sending": 10, "handover": 20})


def test_a_batch_that_was_already_there_leaves_only_the_hand_over() -> None:
    frame = batch(wait_start_ns=200, wait_ns=1)
    assert phases(frame) == pytest.approx({"handover": 1})


def test_a_batch_without_a_record_of_its_making_is_unseen() -> None:
    frame = batch(fetch_start_ns=np.nan, fetch_ns=np.nan, send_start_ns=np.nan, arrival_ns=np.nan)
    assert phases(frame) == pytest.approx({"unseen": 100})


def test_a_lost_send_record_leaves_the_way_as_sending() -> None:
    frame = batch(send_start_ns=np.nan, pickle_ns=np.nan, ready_ns=75)
    assert phases(frame)["sending"] == pytest.approx(25)


def test_pinning_is_told_from_sending() -> None:
    frame = batch().assign(pin_start_ns=90.0 * MS, pin_ns=8.0 * MS)
    assert phases(frame) == pytest.approx(
        {"startup": 10, "making": 53, "index": 2, "sending": 15, "pinning": 8, "handover": 12}
    )


def test_without_workers_the_sampler_comes_before_the_fetch() -> None:
    frame = batch(idle_ns=np.nan, send_start_ns=np.nan, arrival_ns=np.nan).assign(worker=-1)
    assert phases(frame) == pytest.approx({"handover": 15 + 35, "making": 50})


def test_phases_add_up_to_the_wait_whatever_the_order_of_events() -> None:
    generator = np.random.default_rng(1)
    count = 2_000
    names = ("wait_start_ns", "fetch_start_ns", "send_start_ns", "arrival_ns", "pin_start_ns")
    frame = pd.DataFrame({name: generator.uniform(0, 1e9, count) for name in names})
    for name in ("wait_ns", "fetch_ns", "pickle_ns", "idle_ns", "pin_ns"):
        frame[name] = generator.exponential(1e8, count)
    frame = frame.mask(generator.random(frame.shape) < 0.2)
    frame["ready_ns"] = frame["send_start_ns"] + frame["pickle_ns"]
    frame = frame.assign(rank=0, pid=7, worker=generator.integers(-1, 2, count), loader=0, epoch=0)
    frame["batch"] = range(count)
    table = wait_phases(frame, WORKERS)
    waited = frame["wait_ns"].where(frame["wait_start_ns"].notna(), 0).fillna(0)
    assert list(table.columns) == list(PHASES)
    assert (table.to_numpy() >= 0).all()
    assert table.sum(axis=1).to_numpy() == pytest.approx(waited.to_numpy())
    charged = paced(table, frame, np.zeros(count, np.bool_))
    assert (charged.to_numpy() >= -1e-3).all()
    assert charged.sum(axis=1).to_numpy() == pytest.approx(waited.to_numpy())


def test_a_worker_without_idle_time_is_charged_for_what_is_seen_of_its_sending() -> None:
    frame = batch(wait_start_ns=78, wait_ns=12, ready_ns=86, arrival_ns=90, idle_ns=0)
    table = wait_phases(frame, WORKERS)
    assert table["sending"][0] == pytest.approx(12 * MS)
    charged = paced(table, frame, np.zeros(1, np.bool_))
    assert charged["making"][0] == pytest.approx(12 * MS)


def test_a_batch_that_was_ready_in_time_is_not_late_by_its_making() -> None:
    frame = batch(wait_start_ns=87, wait_ns=13, idle_ns=0)
    charged = paced(wait_phases(frame, WORKERS), frame, np.zeros(1, np.bool_))
    assert charged["making"][0] == 0
    assert charged["sending"][0] == pytest.approx(13 * MS)


def test_an_epoch_adds_up_to_the_time_from_iter_to_its_end() -> None:
    scope = scopes(Plan(epochs=3).run())[0]
    table = loop_times(scope.epochs, scope.waits)
    whole = scope.epochs["end_ns"] - scope.epochs["start_ns"]
    assert table["loop_ns"].to_numpy() == pytest.approx(whole.to_numpy())


def test_an_epoch_left_early_ends_with_its_last_step() -> None:
    scope = scopes(Plan().run())[0]
    epochs = scope.epochs.assign(exhausted=False, end_ns=scope.epochs["end_ns"] + 10**12)
    table = loop_times(epochs, scope.waits)
    assert table["loop_ns"][0] < 10**10


def test_waits_of_an_epoch_whose_start_was_not_recorded_count() -> None:
    scope = scopes(Plan().run())[0]
    table = loop_times(scope.epochs.iloc[:0], scope.waits)
    assert table["iter_ns"].tolist() == [0]
    assert table["wait_ns"][0] == scope.waits["wait_ns"].sum()


def test_epochs_are_those_that_either_table_has() -> None:
    scope = scopes(Plan(epochs=3).run())[0]
    epochs = pd.concat([scope.epochs.iloc[1:], scope.epochs.iloc[1:2].assign(iter_ns=7.0)])
    waits = scope.waits[scope.waits["epoch"] < 2].iloc[::-1]
    table = loop_times(epochs, waits)
    assert table["epoch"].tolist() == [0, 1, 2]
    assert table["pid"].tolist() == [-1, *scope.epochs["pid"][1:]]
    assert table["exhausted"].tolist() == [False, True, True]
    assert table["start_ns"].isna().tolist() == [True, False, False]
    assert table["iter_ns"].tolist() == [0, *scope.epochs["iter_ns"][1:]]  # the first of two rows
    assert table["waits"].tolist() == [*scope.waits.groupby("epoch").size()[:2], 0]
    assert table["last_ns"].isna().tolist() == [False, False, True]
    assert not len(loop_times(epochs.iloc[:0], waits.iloc[:0]))


def test_a_worker_that_computes_holds_the_batch_that_it_has_sent() -> None:
    both = pd.concat([batch(wait_start_ns=87, wait_ns=13), batch(fetch_start_ns=87, fetch_ns=50)])
    both["batch"] = [0, 1]
    frame = both.reset_index(drop=True).assign(send_bytes=300.0)
    frame.loc[1, ["wait_start_ns", "wait_ns"]] = np.nan
    charged = paced(wait_phases(frame, WORKERS), frame, np.zeros(2, np.bool_))
    # The wait for the first is due to the second, which is being made meanwhile.
    assert charged["making"].tolist() == pytest.approx([0, (13 - 0.8) * MS])
    assert charged.sum().sum() == pytest.approx(13 * MS)
    # The same time for megabytes through the pipe is their unpickling.
    charged = paced(
        wait_phases(frame, WORKERS), frame.assign(send_bytes=3e6), np.zeros(2, np.bool_)
    )
    assert charged["making"].tolist() == [0, 0]


def test_time_is_shared_out_among_the_intervals_that_it_lies_in() -> None:
    group = np.array([0, 0, 0, 1])
    busy_start, busy_ns = np.array([0.0, 10.0, 20.0, 0.0]), np.array([8.0, 10.0, 5.0, 50.0])
    start, end = np.array([4.0, 12.0, 30.0, 0.0]), np.array([15.0, 14.0, 40.0, 0.0])
    ns = np.array([9.0, 1.0, 2.0, 0.0])
    # Of the first, 4 lie in its own interval and 5 in the next; the third lies in none.
    shared = shared_out(ns, start, end, group, busy_start, busy_ns)
    assert shared.tolist() == pytest.approx([4.0, 5.0 + 1.0, 2.0, 0.0])


def test_what_is_shared_out_adds_up_whatever_the_intervals() -> None:
    random = np.random.default_rng(3)
    for _ in range(50):
        count = int(random.integers(1, 30))
        group = random.integers(0, 3, count)
        busy_start, busy_ns = np.arange(count) * 10.0, random.uniform(0, 10, count)
        busy_start[random.random(count) < 0.1] = np.nan
        start = random.uniform(0, 10.0 * count, count)
        end = start + random.uniform(0, 40, count)
        ns = np.where(random.random(count) < 0.3, 0.0, random.uniform(0, 5, count))
        shared = shared_out(ns, start, end, group, busy_start, busy_ns)
        assert shared.sum() == pytest.approx(ns.sum())
        assert (shared > -1e-9).all()
