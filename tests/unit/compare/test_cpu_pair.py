"""Runs of two CPUs: operations side by side, each by its own CPU's events and formulae."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.counters.counter_metrics import counter_table
from lotus.compare.comparison import Comparison
from lotus.compare.cpu_pair import CpuPair
from lotus.reporters.compare import comparison_page, cpu_tables
from tests.unit.sides import held, recorded, shown

# Of the 8 or 6 slots of a Zen 5's or Zen 4's cycle: front end, back end, retired.
ZEN5 = {"slots_frontend": 8 * 0.2, "slots_backend": 8 * 0.3, "ops_retired": 8 * 0.4}
ZEN4 = {"slots_frontend": 6 * 0.4, "slots_backend": 6 * 0.2, "ops_retired": 6 * 0.3}
V1 = {"slots_frontend": 8 * 0.1, "slots_backend": 8 * 0.5, "ops_retired": 3.0}
V1 |= {"ops_dispatched": 3.2, "branch_misses_spec": 0.0}
COMMON = {"instructions": 2.0}


def on(
    uarch: str, model: str, events: dict[str, float], seed: int, scale: float = 1.0
) -> SimpleNamespace:
    """A run on a CPU, whose events count this many a cycle, of 3 cycles a nanosecond."""
    run = recorded(seed, scale)
    run.manifest |= {"uarch": uarch, "cpu": {"model": model}}
    if events:
        ops = run.ops[["rank", "pid", "loader", "epoch", "batch", "operation", "duration_ns"]]
        ops = ops.assign(kind="operation", nested=False, tid=ops["pid"], enabled_ns=1, running_ns=1)
        ops["cycles"] = 3.0 * ops["duration_ns"]
        for name, a_cycle in {**COMMON, **events}.items():
            ops[name] = a_cycle * ops["cycles"]
        keys = ["rank", "pid", "loader", "epoch", "batch"]
        sums = ["duration_ns", "cycles", *COMMON, *events]
        fetch = ops.groupby(keys, as_index=False)[sums].sum()
        fetch = fetch.assign(kind="fetch", operation="", nested=False, tid=fetch["pid"],
                             enabled_ns=1, running_ns=1)  # fmt: skip
        fetch["cycles"] += 1000.0
        run.counters = pd.concat([ops.astype({"operation": str}), fetch], ignore_index=True)
    return run


def zen5(seed: int = 1, scale: float = 1.0, events: dict[str, float] = ZEN5) -> SimpleNamespace:
    return on("amd_zen5", "AMD EPYC 9575F", events, seed, scale)


def pair(comparison: Comparison) -> CpuPair:
    cpus = comparison.loaders[0].cpus
    assert cpus is not None
    return cpus


def test_each_side_has_the_shares_of_its_own_cpu_and_the_gain_is_named() -> None:
    comparison = held(on("amd_zen4", "AMD EPYC 9654", ZEN4, 2, 1.5), zen5())
    cpus = pair(comparison)
    loader = cpus.rows.set_index("operation").loc["Loader"]
    assert (loader["a_frontend_bound"], loader["b_frontend_bound"]) == pytest.approx((0.4, 0.2))
    assert (loader["a_bad_speculation"], loader["b_retiring"]) == pytest.approx((0.1, 0.4))
    assert (loader["a_ipc"], loader["b_ipc"]) == pytest.approx((2.0, 2.0))
    assert loader["a_instructions"] == pytest.approx(6e6 * loader["a_ns"] / 1e6)
    assert loader["low"] < 1.5 < loader["high"]
    assert loader["times"] == pytest.approx(loader["a_ns"] / loader["b_ns"])
    assert (cpus.gains_most, cpus.saves_most) == ("Loader", "Loader")
    text = " ".join(shown(comparison).split())
    assert "gains most and saves most time." in text
    assert "A: AMD EPYC 9654, B: AMD EPYC 9575F" in text
    assert "40% | 20%" in text
    assert "(6 and 8 slots a cycle)" in text
    parts = [part for section in comparison_page.sections([comparison]) for part in section.parts]
    for part in cpu_tables.parts(cpus, ("A", "B")):
        assert part in parts


def test_of_two_vendors_all_is_shown_and_what_does_not_compare_is_said() -> None:
    cpus = pair(held(zen5(), on("neoverse_v1", "Neoverse-V1", V1, 2, 0.5)))
    notes = " ".join(cpus.notes)
    assert "the instruction sets differ" in notes
    assert "from different events on AMD Zen 5 and on Arm Neoverse V1" in notes
    loader = cpus.rows.set_index("operation").loc["Loader"]
    assert loader[["a_backend_bound", "b_backend_bound"]].tolist() == pytest.approx([0.3, 0.5])
    assert cpus.gains_most == "Loader"


def test_a_cpu_on_which_nothing_gains_is_not_praised() -> None:
    cpus = pair(held(zen5(), on("amd_zen4", "AMD EPYC 9654", ZEN4, 2, 1.5)))
    assert (cpus.gains_most, cpus.saves_most) == ("", "")
    assert cpus.gain.startswith("No operation gains; decode (default_loader), 0.6")
    same = pair(held(zen5(), on("amd_zen4", "AMD EPYC 9654", ZEN4, 2)))
    assert same.gain == "No operation was shown to take a different time."


def test_without_counters_the_times_are_side_by_side() -> None:
    comparison = held(zen5(), on("amd_zen4", "AMD EPYC 9654", {}, 2, 1.5))
    cpus = pair(comparison)
    assert cpus.notes == ["B was not recorded with --counters: only times can be compared"]
    assert cpus.rows["a_ns"].notna().all()
    assert "Shares of slots" not in shown(comparison)


def test_runs_of_one_cpu_have_no_such_table() -> None:
    assert held(zen5(), zen5(2)).loaders[0].cpus is None
    without_counters = zen5(2, events={})
    without_counters.manifest["uarch"] = None
    assert held(zen5(), without_counters).loaders[0].cpus is None


def test_groups_of_events_that_took_turns_by_batch_are_compared_too() -> None:
    sides = [zen5(), on("amd_zen4", "AMD EPYC 9654", ZEN4, 2)]
    for run in sides:
        table = run.counters
        table["slots_frontend"] *= np.where(table["batch"] % 3 == 0, 1.0, np.nan)
    line = held(*sides).line("counter:Loader:frontend_bound")
    assert line is not None
    for run, value in zip(sides, (line.a, line.b), strict=True):
        known = counter_table(run.counters, run.manifest["uarch"]).set_index("operation")
        assert value == pytest.approx(known.loc["Loader", "frontend_bound"])
    assert line.difference.has_interval


def test_operations_that_the_table_leaves_out_are_counted() -> None:
    cpus = pair(held(zen5(), on("amd_zen4", "AMD EPYC 9654", ZEN4, 2)))
    rows = pd.concat([cpus.rows] * 30, ignore_index=True)
    titles = cpu_tables.parts(dataclasses.replace(cpus, rows=rows), ("A", "B"))
    assert f"the first 25 of {len(rows)}, the others: see --json)" in str(titles[2])
    assert "see --json" not in str(cpu_tables.parts(cpus, ("A", "B"))[2])
