"""Metrics, of counts whose metrics are known."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from native_map.events import TABLES, formulas, pmu
from native_map.events.cpu import Cpu
from native_map.events.metrics import LEVEL_2 as NODES
from native_map.events.metrics import METRICS, gives
from tests.unit.pmus import UARCHES, cpu_of, row

FOUR = ["frontend_bound", "backend_bound", "retiring", "bad_speculation"]


def metrics_of(counts: pd.DataFrame, cpu: Cpu | str) -> dict[str, float]:
    return {str(k): float(v) for k, v in formulas.metrics(counts, cpu).iloc[0].items()}


def test_zen5_shares_of_eight_slots_a_cycle() -> None:
    counts = row(
        cycles=1000, instructions=2500, slots_frontend=2000, slots_backend=2960, ops_retired=2400
    )
    metrics = metrics_of(counts, "amd_zen5")
    assert metrics["ipc"] == 2.5
    assert metrics["frontend_bound"] == 0.25
    assert metrics["backend_bound"] == 0.37
    assert metrics["retiring"] == 0.3
    assert metrics["bad_speculation"] == pytest.approx(0.08)


def test_zen4_has_six_slots_a_cycle() -> None:
    assert metrics_of(row(cycles=100, slots_frontend=150), "amd_zen4") == {"frontend_bound": 0.25}


LEVEL_2 = {
    "cycles": 1000,
    "slots_frontend": 2000,
    "slots_backend": 3000,
    "ops_retired": 2400,
    "frontend_starved": 150,
    "retire_waits": 400,
    "retire_waits_load": 300,
    "branch_misses": 3,
    "resyncs": 1,
    "ops_microcode": 80,
}


def test_zen5_level_2_parts_each_node_of_level_1() -> None:
    metrics = metrics_of(row(**LEVEL_2), "amd_zen5")
    assert metrics["frontend_latency"] == 0.15
    assert metrics["frontend_bandwidth"] == pytest.approx(0.25 - 0.15)
    assert metrics["backend_memory"] == pytest.approx(0.375 * 0.75)
    assert metrics["backend_core"] == pytest.approx(0.375 * 0.25)
    assert metrics["bad_speculation"] == pytest.approx(0.075)
    assert metrics["mispredicted_branches"] == pytest.approx(0.075 * 0.75)
    assert metrics["pipeline_restarts"] == pytest.approx(0.075 * 0.25)
    assert metrics["microcode"] == 0.01


def test_where_retirement_hardly_waits_memory_and_core_are_not_told_apart() -> None:
    """A chain of additions retires one in every cycle: 0.2 % of waits are those of interrupts."""
    metrics = metrics_of(row(**{**LEVEL_2, "retire_waits": 2, "retire_waits_load": 2}), "amd_zen5")
    assert np.isnan(metrics["backend_memory"])
    assert np.isnan(metrics["backend_core"])
    assert metrics["backend_bound"] == 0.375


def test_zen_bad_speculation_comes_from_dispatched_operations_where_they_are_counted() -> None:
    counts = row(
        cycles=1000,
        slots_frontend=2000,
        slots_backend=2000,
        slots_smt=800,
        ops_retired=2400,
        ops_dispatched=3200,
    )
    metrics = metrics_of(counts, "amd_zen5")
    assert metrics["bad_speculation"] == 0.1
    assert metrics["smt_contention"] == 0.1
    assert sum(metrics[name] for name in [*FOUR, "smt_contention"]) == pytest.approx(1)


def test_zen_without_dispatched_operations_takes_the_other_threads_slots_off_the_rest() -> None:
    counts = row(
        cycles=1000, slots_frontend=2000, slots_backend=2000, slots_smt=800, ops_retired=2400
    )
    assert metrics_of(counts, "amd_zen5")["bad_speculation"] == pytest.approx(0.1)


def test_skylake_shares() -> None:
    counts = row(
        cycles=1000,
        slots_frontend=800,
        ops_retired=1600,
        ops_dispatched=1800,
        recovery_cycles=50,
    )
    metrics = metrics_of(counts, "intel_skylake")
    assert metrics["frontend_bound"] == 0.2
    assert metrics["retiring"] == 0.4
    assert metrics["bad_speculation"] == 0.1  # (1800 - 1600 + 4 x 50) / 4000
    assert metrics["backend_bound"] == pytest.approx(0.3)


def test_perf_metrics_are_shares_of_their_sum_not_of_the_slots_read_with_them() -> None:
    counts = row(
        slots=5000,
        topdown_retiring=2000,
        topdown_bad_spec=200,
        topdown_fe_bound=800,
        topdown_be_bound=1000,
    )
    assert metrics_of(counts, "intel_icelake") == {
        "frontend_bound": 0.2,
        "backend_bound": 0.25,
        "retiring": 0.5,
        "bad_speculation": 0.05,
    }


PERF_METRICS = {
    "slots": 5000,
    "topdown_retiring": 1000,
    "topdown_bad_spec": 500,
    "topdown_fe_bound": 1500,
    "topdown_be_bound": 2000,
    "topdown_heavy_ops": 300,
    "topdown_br_mispredict": 450,
    "topdown_fetch_lat": 1000,
    "topdown_mem_bound": 1200,
}


@pytest.mark.parametrize("uarch", ["intel_sapphire", "intel_granite"])
def test_level_2_of_perf_metrics_parts_each_node_of_level_1(uarch: str) -> None:
    metrics = metrics_of(row(**PERF_METRICS), uarch)
    assert [metrics[name] for name in FOUR] == [0.3, 0.4, 0.2, 0.1]
    assert metrics["frontend_latency"] == 0.2
    assert metrics["frontend_bandwidth"] == pytest.approx(0.1)
    assert metrics["backend_memory"] == 0.24
    assert metrics["backend_core"] == pytest.approx(0.16)
    assert metrics["mispredicted_branches"] == 0.09
    assert metrics["pipeline_restarts"] == pytest.approx(0.01)
    assert metrics["heavy_operations"] == 0.06


@pytest.mark.parametrize(
    ("uarch", "counts"),
    [("amd_zen4", LEVEL_2), ("amd_zen5", LEVEL_2), ("intel_granite", PERF_METRICS)],
)
@given(data=st.data())
def test_the_nodes_of_level_2_sum_to_their_parent_whatever_the_counts(
    uarch: str, counts: dict[str, int], data: st.DataObject
) -> None:
    """All slots of a parent are in its nodes. Of retiring only the slow part is a node."""
    drawn = {name: data.draw(st.integers(1, 10**12), label=name) for name in counts}
    metrics = metrics_of(row(**drawn), uarch)
    for parent in ("frontend_bound", "backend_bound", "bad_speculation"):
        below = [metrics[node] for node in NODES[parent]]
        size = max(1.0, *map(abs, below))
        if not np.isnan(below).any():
            assert sum(below) == pytest.approx(metrics[parent], abs=1e-9 * size)


def test_ice_lake_has_no_level_2() -> None:
    assert "topdown2" not in TABLES["intel_icelake"].sets
    assert "topdown2" in TABLES["intel_sapphire"].sets


@pytest.mark.parametrize(
    ("uarch", "slots"), [("intel_icelake", 5), ("intel_sapphire", 6), ("intel_granite", 6)]
)
def test_intel_counted_slots_come_from_the_counter_or_the_width(uarch: str, slots: int) -> None:
    counted = row(slots_frontend=60, slots_backend=120, ops_retired=90)
    by_width = metrics_of(counted.assign(cycles=100), uarch)
    assert by_width["backend_bound"] == pytest.approx(120 / (100 * slots))
    shared = metrics_of(counted.assign(cycles=100, slots_counted=300), uarch)
    assert [shared[name] for name in FOUR] == pytest.approx([0.2, 0.4, 0.3, 0.1])


def test_neoverse_v1_moves_what_mispredictions_cost_from_the_front_end() -> None:
    counts = row(
        cycles=1000,
        slots_frontend=2000,
        slots_backend=2000,
        ops_retired=3000,
        ops_dispatched=4000,
    )
    plain = metrics_of(counts, "neoverse_v1")
    assert [plain[name] for name in FOUR] == pytest.approx([0.25, 0.25, 0.375, 0.125])
    moved = metrics_of(counts.assign(branch_misses_spec=10), "neoverse_v1")
    assert [moved[name] for name in FOUR] == pytest.approx([0.21, 0.25, 0.375, 0.165])


def test_neoverse_v2_moves_them_from_both_ends() -> None:
    counts = row(
        cycles=1000,
        slots_frontend=2000,
        slots_backend=2000,
        ops_retired=3000,
        ops_dispatched=4000,
        branch_misses_spec=10,
    )
    metrics = metrics_of(counts, "neoverse_v2")
    assert [metrics[name] for name in FOUR] == pytest.approx([0.24, 0.22, 0.375, 0.165])


@pytest.mark.parametrize(("stepping", "frontend"), [(0, 0.2), (2, 0.2), (3, 0.4), (0x10, 0.4)])
def test_early_neoverse_n2_counts_a_slot_a_cycle_too_much(stepping: int, frontend: float) -> None:
    counts = row(
        cycles=1000,
        slots_frontend=2000,
        slots_backend=1000,
        ops_retired=900,
        ops_dispatched=1000,
    )
    metrics = metrics_of(counts, cpu_of("neoverse_n2", stepping))
    assert metrics["frontend_bound"] == pytest.approx(frontend)
    assert sum(metrics[name] for name in FOUR) == pytest.approx(1)


def test_neoverse_n1_gives_stalled_cycles_under_another_name() -> None:
    counts = row(cycles=1000, stalled_cycles_frontend=250, stalled_cycles_backend=500)
    assert metrics_of(counts, "neoverse_n1") == {"frontend_stalled": 0.25, "backend_stalled": 0.5}


def test_misses_are_per_thousand_instructions() -> None:
    counts = row(
        instructions=4000,
        l1d_misses=80,
        l2_misses=40,
        llc_misses=8,
        cache_misses=12,
        branch_misses=20,
        branches=400,
        itlb_misses=2,
        dtlb_load_misses=3,
        dtlb_store_misses=1,
        dram_local_loads=5,
        dram_remote_loads=3,
        task_clock=123.0,
    )
    assert metrics_of(counts, "intel_skylake") == {
        "l1d_mpki": 20,
        "l2_mpki": 10,
        "llc_mpki": 2,
        "cache_mpki": 3,
        "dram_loads_pki": 2,
        "branch_mpki": 5,
        "branch_miss_rate": 0.05,
        "itlb_mpki": 0.5,
        "dtlb_mpki": 1,
        "cpu_ns": 123,
    }
    assert metrics_of(row(instructions=1000, dram_loads=3, dtlb_misses=2), "amd_zen5") == {
        "dram_loads_pki": 3,
        "dtlb_mpki": 2,
    }


def test_half_of_a_sum_gives_no_metric() -> None:
    metrics = formulas.metrics(
        row(instructions=1000, dram_local_loads=3, dtlb_load_misses=3), "generic"
    )
    assert metrics.empty or list(metrics.columns) == []


@pytest.mark.parametrize("uarch", UARCHES)
def test_what_is_not_counted_is_absent(uarch: str) -> None:
    assert list(formulas.metrics(row(page_faults=3, other=1), uarch).columns) == []
    for events in pmu.sets(uarch).values():
        for event in events.events:
            alone = formulas.metrics(row(**{event.name: 5.0}), uarch)
            assert list(alone.columns) == (["cpu_ns"] if event.name == "task_clock" else [])


def test_nothing_to_divide_by_is_nan_and_never_zero() -> None:
    counts = pd.DataFrame(
        {
            "cycles": [0, 1000, np.nan, 0, -5],
            "instructions": [0, 500, 7, 9, 9],
            "slots_frontend": [0, 800, 8, 9, 9],
            "branch_misses": [0, 0, 0, 0, 0],
        },
        index=["a", "b", "c", "corrected to 0", "corrected below 0"],
    )
    metrics = formulas.metrics(counts, "amd_zen5")
    assert list(metrics.index) == list(counts.index)
    assert metrics["ipc"].isna().tolist() == [True, False, True, True, True]
    assert metrics["frontend_bound"].isna().tolist() == [True, False, True, True, True]
    assert metrics["branch_mpki"].isna().tolist() == [True, False, False, False, False]
    assert metrics.loc["b", "branch_mpki"] == 0


def test_counts_of_nullable_integers_and_no_rows_are_counts_too() -> None:
    counts = pd.DataFrame({"cycles": pd.array([4, None], "Int64"), "instructions": [8, 8]})
    assert formulas.metrics(counts, "generic")["ipc"].tolist()[0] == 2
    assert np.isnan(formulas.metrics(counts, "generic")["ipc"].tolist()[1])
    assert list(formulas.metrics(counts.iloc[:0], "generic").columns) == ["ipc"]


_count = st.integers(0, 10**15)


@pytest.mark.parametrize("uarch", [u for u in UARCHES if TABLES[u].width])
@given(values=st.lists(_count, min_size=12, max_size=12))
def test_the_four_shares_sum_to_one_whatever_the_counts(uarch: str, values: list[int]) -> None:
    for form in TABLES[uarch].sets["topdown"]:
        events = ["cycles", *(e.name for e in form.events)]
        events = [e for e in events if e not in ("ops_dispatched", "slots_smt")] + (
            ["ops_dispatched"] if not uarch.startswith("amd") else []
        )
        counts = row(**dict(zip(events, values, strict=False)))
        counts["cycles"] += 1
        metrics = formulas.metrics(counts, uarch)
        assert set(FOUR) <= set(metrics.columns)
        total = float(metrics[FOUR].sum(axis=1, skipna=False).iloc[0])
        size = float(metrics[FOUR].abs().sum(axis=1).iloc[0])
        assert np.isnan(total) or total == pytest.approx(1, abs=1e-9 * max(size, 1))


def test_the_width_that_the_kernel_tells_goes_before_ours() -> None:
    wide = Cpu("", 0, 0, 0, "", "", "neoverse_v2", False, slots=10)
    assert metrics_of(row(cycles=100, slots_frontend=250), wide) == {"frontend_bound": 0.25}


@pytest.mark.parametrize("uarch", UARCHES)
def test_what_events_give_is_known_before_they_are_counted(uarch: str) -> None:
    events = ["cycles", "instructions", "task_clock", "slots_counted", "slots"]
    events += [e.name for form in TABLES[uarch].sets.get("topdown", ()) for e in form.events]
    events = list(dict.fromkeys(events))
    if "topdown2" in TABLES[uarch].sets:
        _gives_what_it_says(uarch, [e.name for e in TABLES[uarch].sets["topdown2"][0].events])
    for chosen in itertools.product([False, True], repeat=len(events)):
        some = list(itertools.compress(events, chosen))
        metrics = formulas.metrics(row(**dict.fromkeys(some, 1.0)), uarch)
        assert set(metrics.columns) == gives(some, TABLES[uarch])


def _gives_what_it_says(uarch: str, events: list[str]) -> None:
    """With each event of level 2 left out once."""
    for left_out in ["", *events]:
        some = ["cycles", *(name for name in events if name != left_out)]
        metrics = formulas.metrics(row(**dict.fromkeys(some, 1.0)), uarch)
        assert set(metrics.columns) == gives(some, TABLES[uarch])


def test_every_metric_says_what_it_is() -> None:
    for name, metric in METRICS.items():
        assert re.fullmatch("[a-z0-9_]+", name)
        assert all(metric), name


def test_a_share_that_others_leave_over_is_never_below_zero() -> None:
    counts = pd.DataFrame(
        {"cycles": [1000.0] * 3, "slots_frontend": [2000.0] * 3, "ops_retired": [4000.0] * 3,
         "slots_backend": [2048.0, 3000.0, 1000.0]}
    )  # fmt: skip
    raw = formulas.metrics(counts, "amd_zen5")
    assert raw["bad_speculation"].tolist() == pytest.approx([-0.006, -0.125, 0.125])
    shares = formulas.clip_shares(raw)["bad_speculation"]
    assert shares[0] == 0
    assert np.isnan(shares[1])
    assert shares[2] == pytest.approx(0.125)
    assert formulas.negative_share_notes(raw) == [
        "bad speculation is the remainder of other counts: in 1 of 3 rows it is 0 ±0.6% and in 1 "
        "of 3 rows it is not resolved"
    ]
    assert formulas.negative_share_notes(raw.iloc[2:]) == []
