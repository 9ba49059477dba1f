"""Batches and throughput over time, thinned out without losing any."""

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.samples import distributions
from lotus.analysis.timelines import time_series
from tests.unit.simulated import MS, Plan


def of(plan: Plan) -> pd.DataFrame:
    return time_series.batch_series(scopes(plan.run())[0])


def test_every_batch_has_its_wait_step_and_delay() -> None:
    run = Plan(batches=10, epochs=2, step=3.0).run()
    table = of(Plan(batches=10, epochs=2, step=3.0))
    assert len(table) == len(run.waits) == 20
    assert table["wait_ns"].sum() == run.waits["wait_ns"].sum()
    assert table["step_ns"].sum() == run.waits["step_ns"].sum()
    assert table["delay_ns"].sum() == run.batches["delay_ns"].sum()
    assert table["time_ns"].is_monotonic_increasing
    first = run.waits.iloc[0]
    begun = run.epochs["start_ns"].min()
    assert table["time_ns"][0] == first["start_ns"] + first["wait_ns"] - begun


@pytest.mark.parametrize("most", [1, 7, 40, 1000])
def test_thinned_rows_stand_for_all_batches(most: int) -> None:
    table = of(Plan(batches=40, operations={"Loader": lambda sample, worker: 1 + sample % 7}))
    thin = time_series.thinned(table, most)
    assert len(thin) <= most
    assert thin["batches"].sum() == 40
    for name in time_series.MEASURES:
        weighted = (thin[f"{name}_ns"] * thin["batches"]).sum()
        assert weighted == pytest.approx(table[f"{name}_ns"].sum())
        assert thin[f"{name}_max_ns"].max() == table[f"{name}_ns"].max()


def test_thinning_keeps_ranks_apart() -> None:
    first, two = of(Plan(batches=5)), of(Plan(batches=9)).assign(rank=3)
    thin = time_series.thinned(pd.concat([first, two]), 4)
    assert thin.groupby("rank")["batches"].sum().to_dict() == {0: 5, 3: 9}


def test_throughput_adds_up_to_the_samples() -> None:
    table = of(Plan(batches=40, batch_size=4))
    rates = time_series.throughput(table)
    assert rates["samples"].sum() == 160
    seconds = (rates["end_ns"] - rates["start_ns"]) / 1e9
    assert (rates["samples_per_s"] * seconds).sum() == pytest.approx(160)
    assert len(rates) == 10
    # A batch of which only the wait was recorded is as large as the others.
    table.loc[3, "size"] = np.nan
    assert time_series.throughput(table)["samples"].sum() == 160


def test_one_batch_and_none() -> None:
    single = of(Plan(batches=1))
    assert time_series.throughput(single)["samples"].tolist() == [4]
    assert not len(time_series.throughput(single.iloc[:0]))
    assert not len(time_series.thinned(single.iloc[:0]))


def test_of_many_readings_of_memory_the_largest_stays() -> None:
    run = Plan(batches=4).run()
    count = 1000
    run.resources = pd.DataFrame(
        {
            "rank": 0,
            "worker": 0,
            "pid": int(run.workers["pid"].iloc[0]),
            "time_ns": int(run.epochs["start_ns"].min()) + np.arange(count) * MS,
            "pss": np.where(np.arange(count) == 531, 9_000, 1_000),
        }
    )
    readings = time_series.memory(scopes(run)[0], most=50)
    assert len(readings) == 50
    assert readings["pss_bytes"].max() == 9_000
    assert readings["time_ns"][np.argmax(readings["pss_bytes"])] == 531 * MS


def test_quantiles_are_those_of_the_calls() -> None:
    run = Plan(batches=30, operations={"Slow": lambda sample, worker: 1 + sample % 11}).run()
    run.batches["send_ns"] = 5
    table = distributions.quantiles(scopes(run)[0])
    row = table[table["name"] == "Slow"].iloc[0]
    calls = run.ops["duration_ns"]
    assert row["count"] == len(calls)
    assert row["total_ns"] == calls.sum()
    for share, name in zip(distributions.QUANTILES, distributions.NAMES, strict=True):
        assert row[name] == pytest.approx(calls.quantile(share))
    assert (row["min_ns"], row["max_ns"]) == (calls.min(), calls.max())
    assert set(table["name"]) == {"Slow", "collate", "send"}


def test_a_rate_is_of_the_time_in_loops() -> None:
    plan = Plan(batches=40, epochs=2, batch_size=4)
    scope = scopes(plan.run())[0]
    table, loops = time_series.batch_series(scope), time_series.loops([scope], 0)
    assert len(loops) == 2
    assert loops["start_ns"].iloc[0] == 0
    gap = 10e9
    later = table["epoch"] == 1
    table.loc[later, "time_ns"] += gap
    loops.loc[loops.index[1], ["start_ns", "end_ns"]] += gap
    rates = time_series.throughput(table, loops=loops)
    assert rates["samples"].sum() == 320
    between = rates["samples_per_s"].isna()
    assert between.sum() > 10
    assert not rates["samples"][between].any()
    whole = time_series.throughput(of(plan))["samples_per_s"]
    assert rates["samples_per_s"].median() == pytest.approx(whole.median(), rel=0.5)


def test_no_row_is_of_two_epochs_unless_there_are_very_many() -> None:
    table = of(Plan(batches=11, epochs=4))
    thin = time_series.thinned(table, 20)
    assert thin.groupby("epoch")["batches"].sum().to_dict() == dict.fromkeys(range(4), 11)
    assert len(time_series.thinned(table, 4)) <= 4


def test_a_loop_that_was_broken_off_ends_with_its_last_step() -> None:
    run = Plan(batches=40, epochs=2).run()
    run.epochs["end_ns"] = run.epochs["end_ns"].where(run.epochs["epoch"] == 0)
    scope = scopes(run)[0]
    loops = time_series.loops([scope], 0)
    assert len(loops) == 2
    rates = time_series.throughput(time_series.batch_series(scope), loops=loops)
    last = rates[rates["start_ns"] > loops["start_ns"].iloc[1]]
    assert last["samples_per_s"].notna().all()
