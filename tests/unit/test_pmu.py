"""Events, groups and metrics, against counts whose metrics are known."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from native_map import pmu
from native_map.cpu import Cpu
from native_map.errors import Unusable
from native_map.events import TABLES, catalogue
from native_map.events.model import SOFTWARE, Event

FOUR = ["frontend_bound", "backend_bound", "retiring", "bad_speculation"]
UARCHES = sorted(TABLES)


def cpu_of(uarch: str, stepping: int = 0, virtual: bool = False) -> Cpu:
    return Cpu("", 0, 0, stepping, "", "", uarch, virtual)


def row(**counts: float) -> pd.DataFrame:
    return pd.DataFrame({name: [value] for name, value in counts.items()})


def one(counts: pd.DataFrame, cpu: Cpu | str) -> dict[str, float]:
    return {str(k): float(v) for k, v in pmu.metrics(counts, cpu).iloc[0].items()}


def names(choice: pmu.Choice) -> list[list[str]]:
    return [[e.name for e in group] for group in choice.groups]


# ── metrics ──────────────────────────────────────────────────────────────────────────────────


def test_zen5_shares_of_eight_slots_a_cycle() -> None:
    counts = row(
        cycles=1000, instructions=2500, slots_frontend=2000, slots_backend=2960, ops_retired=2400
    )
    found = one(counts, "amd_zen5")
    assert found["ipc"] == 2.5
    assert found["frontend_bound"] == 0.25
    assert found["backend_bound"] == 0.37
    assert found["retiring"] == 0.3
    assert found["bad_speculation"] == pytest.approx(0.08)


def test_zen4_has_six_slots_a_cycle() -> None:
    assert one(row(cycles=100, slots_frontend=150), "amd_zen4") == {"frontend_bound": 0.25}


def test_zen_bad_speculation_comes_from_dispatched_operations_where_they_are_counted() -> None:
    counts = row(
        cycles=1000,
        slots_frontend=2000,
        slots_backend=2000,
        slots_smt=800,
        ops_retired=2400,
        ops_dispatched=3200,
    )
    found = one(counts, "amd_zen5")
    assert found["bad_speculation"] == 0.1
    assert found["smt_contention"] == 0.1
    assert sum(found[name] for name in [*FOUR, "smt_contention"]) == pytest.approx(1)


def test_zen_without_dispatched_operations_takes_the_other_threads_slots_off_the_rest() -> None:
    counts = row(
        cycles=1000, slots_frontend=2000, slots_backend=2000, slots_smt=800, ops_retired=2400
    )
    assert one(counts, "amd_zen5")["bad_speculation"] == pytest.approx(0.1)


def test_skylake_shares() -> None:
    counts = row(
        cycles=1000,
        slots_frontend=800,
        ops_retired=1600,
        ops_dispatched=1800,
        recovery_cycles=50,
    )
    found = one(counts, "intel_skylake")
    assert found["frontend_bound"] == 0.2
    assert found["retiring"] == 0.4
    assert found["bad_speculation"] == 0.1  # (1800 - 1600 + 4 x 50) / 4000
    assert found["backend_bound"] == pytest.approx(0.3)


def test_perf_metrics_are_shares_of_their_sum_not_of_the_slots_read_with_them() -> None:
    counts = row(
        slots=5000,
        topdown_retiring=2000,
        topdown_bad_spec=200,
        topdown_fe_bound=800,
        topdown_be_bound=1000,
    )
    assert one(counts, "intel_icelake") == {
        "frontend_bound": 0.2,
        "backend_bound": 0.25,
        "retiring": 0.5,
        "bad_speculation": 0.05,
    }


@pytest.mark.parametrize(
    ("uarch", "slots"), [("intel_icelake", 5), ("intel_sapphire", 6), ("intel_granite", 6)]
)
def test_intel_counted_slots_come_from_the_counter_or_the_width(uarch: str, slots: int) -> None:
    counted = row(slots_frontend=60, slots_backend=120, ops_retired=90)
    by_width = one(counted.assign(cycles=100), uarch)
    assert by_width["backend_bound"] == pytest.approx(120 / (100 * slots))
    shared = one(counted.assign(cycles=100, slots_counted=300), uarch)
    assert [shared[name] for name in FOUR] == pytest.approx([0.2, 0.4, 0.3, 0.1])


def test_neoverse_v1_moves_what_mispredictions_cost_from_the_front_end() -> None:
    counts = row(
        cycles=1000,
        slots_frontend=2000,
        slots_backend=2000,
        ops_retired=3000,
        ops_dispatched=4000,
    )
    plain = one(counts, "neoverse_v1")
    assert [plain[name] for name in FOUR] == pytest.approx([0.25, 0.25, 0.375, 0.125])
    moved = one(counts.assign(branch_misses_spec=10), "neoverse_v1")
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
    found = one(counts, "neoverse_v2")
    assert [found[name] for name in FOUR] == pytest.approx([0.24, 0.22, 0.375, 0.165])


@pytest.mark.parametrize(("stepping", "frontend"), [(0, 0.2), (2, 0.2), (3, 0.4), (0x10, 0.4)])
def test_early_neoverse_n2_counts_a_slot_a_cycle_too_much(stepping: int, frontend: float) -> None:
    counts = row(
        cycles=1000,
        slots_frontend=2000,
        slots_backend=1000,
        ops_retired=900,
        ops_dispatched=1000,
    )
    found = one(counts, cpu_of("neoverse_n2", stepping))
    assert found["frontend_bound"] == pytest.approx(frontend)
    assert sum(found[name] for name in FOUR) == pytest.approx(1)


def test_neoverse_n1_gives_stalled_cycles_under_another_name() -> None:
    counts = row(cycles=1000, stalled_cycles_frontend=250, stalled_cycles_backend=500)
    assert one(counts, "neoverse_n1") == {"frontend_stalled": 0.25, "backend_stalled": 0.5}


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
    assert one(counts, "intel_skylake") == {
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
    assert one(row(instructions=1000, dram_loads=3, dtlb_misses=2), "amd_zen5") == {
        "dram_loads_pki": 3,
        "dtlb_mpki": 2,
    }


def test_half_of_a_sum_gives_no_metric() -> None:
    found = pmu.metrics(row(instructions=1000, dram_local_loads=3, dtlb_load_misses=3), "generic")
    assert found.empty or list(found.columns) == []


@pytest.mark.parametrize("uarch", UARCHES)
def test_what_is_not_counted_is_absent(uarch: str) -> None:
    assert list(pmu.metrics(row(page_faults=3, other=1), uarch).columns) == []
    for events in pmu.sets(uarch).values():
        for event in events.events:
            alone = pmu.metrics(row(**{event.name: 5.0}), uarch)
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
    found = pmu.metrics(counts, "amd_zen5")
    assert list(found.index) == list(counts.index)
    assert found["ipc"].isna().tolist() == [True, False, True, True, True]
    assert found["frontend_bound"].isna().tolist() == [True, False, True, True, True]
    assert found["branch_mpki"].isna().tolist() == [True, False, False, False, False]
    assert found.loc["b", "branch_mpki"] == 0


def test_counts_of_nullable_integers_and_no_rows_are_counts_too() -> None:
    counts = pd.DataFrame({"cycles": pd.array([4, None], "Int64"), "instructions": [8, 8]})
    assert pmu.metrics(counts, "generic")["ipc"].tolist()[0] == 2
    assert np.isnan(pmu.metrics(counts, "generic")["ipc"].tolist()[1])
    assert list(pmu.metrics(counts.iloc[:0], "generic").columns) == ["ipc"]


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
        found = pmu.metrics(counts, uarch)
        assert set(FOUR) <= set(found.columns)
        total = float(found[FOUR].sum(axis=1, skipna=False).iloc[0])
        size = float(found[FOUR].abs().sum(axis=1).iloc[0])
        assert np.isnan(total) or total == pytest.approx(1, abs=1e-9 * max(size, 1))


def test_the_width_that_the_kernel_tells_goes_before_ours() -> None:
    wide = Cpu("", 0, 0, 0, "", "", "neoverse_v2", False, slots=10)
    assert one(row(cycles=100, slots_frontend=250), wide) == {"frontend_bound": 0.25}


@pytest.mark.parametrize("uarch", UARCHES)
def test_what_events_give_is_known_before_they_are_counted(uarch: str) -> None:
    events = ["cycles", "instructions", "task_clock", "slots_counted", "slots"]
    events += [e.name for form in TABLES[uarch].sets.get("topdown", ()) for e in form.events]
    events = list(dict.fromkeys(events))
    for chosen in itertools.product([False, True], repeat=len(events)):
        some = list(itertools.compress(events, chosen))
        found = pmu.metrics(row(**dict.fromkeys(some, 1.0)), uarch)
        assert set(found.columns) == catalogue.gives(some, TABLES[uarch])


def test_choosing_does_not_wait_for_numpy_or_pandas() -> None:
    script = (
        "import sys; from native_map import cpu, perf_list, pmu; pmu.choose(cpu.detect(), 5);"
        "sys.exit(bool({'numpy', 'pandas'} & set(sys.modules)))"
    )
    root = Path(pmu.__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", script], cwd=root, check=False).returncode == 0


def test_every_metric_says_what_it_is() -> None:
    for name, metric in pmu.METRICS.items():
        assert re.fullmatch("[a-z0-9_]+", name)
        assert all(metric), name


# ── tables ───────────────────────────────────────────────────────────────────────────────────

# What the vendors' own tables in Linux tools/perf/pmu-events say, written down a second time.
ENCODINGS = {
    ("amd_zen5", "slots_frontend"): 0x1000001A0,
    ("amd_zen5", "slots_backend"): 0x100001EA0,
    ("amd_zen5", "slots_smt"): 0x1000060A0,
    ("amd_zen5", "ops_retired"): 0xC1,
    ("amd_zen5", "ops_dispatched"): 0x07AA,
    ("amd_zen5", "dram_loads"): 0x4843,
    ("amd_zen4", "l2_misses"): 0x0964,
    ("intel_skylake", "slots_frontend"): 0x019C,
    ("intel_skylake", "recovery_cycles"): 0x010D,
    ("intel_skylake", "ops_dispatched"): 0x010E,
    ("intel_skylake", "dtlb_load_misses"): 0x0E08,
    ("intel_icelake", "slots"): 0x0400,
    ("intel_icelake", "topdown_retiring"): 0x8000,
    ("intel_icelake", "topdown_bad_spec"): 0x8100,
    ("intel_icelake", "topdown_fe_bound"): 0x8200,
    ("intel_icelake", "topdown_be_bound"): 0x8300,
    ("intel_icelake", "itlb_misses"): 0x0E85,
    ("intel_sapphire", "slots_counted"): 0x01A4,
    ("intel_sapphire", "slots_backend"): 0x02A4,
    ("intel_sapphire", "itlb_misses"): 0x0E11,
    ("intel_granite", "dtlb_store_misses"): 0x0E13,
    ("neoverse_v1", "slots_frontend"): 0x3E,
    ("neoverse_v1", "slots_backend"): 0x3D,
    ("neoverse_v2", "ops_retired"): 0x3A,
    ("neoverse_n2", "ops_dispatched"): 0x3B,
    ("neoverse_n1", "stalled_cycles_frontend"): 0x23,
    ("neoverse_n1", "stalled_cycles_backend"): 0x24,
}


def every_event(uarch: str) -> list[Event]:
    forms = [form for forms in TABLES[uarch].sets.values() for form in forms]
    return list(dict.fromkeys(event for form in forms for event in form.events))


@pytest.mark.parametrize(("where", "config"), ENCODINGS.items(), ids=lambda v: str(v))
def test_encodings_are_those_of_the_vendors_tables(where: tuple[str, str], config: int) -> None:
    uarch, name = where
    assert {e.config for e in every_event(uarch) if e.name == name} == {config}


@pytest.mark.parametrize("uarch", UARCHES)
def test_a_table_is_sound(uarch: str) -> None:
    known = pmu.sets(uarch)
    assert {"generic", "software", "branch"} <= set(known)
    events = every_event(uarch)
    assert len({e.name for e in events}) == len(events), "one name, one meaning"
    for event in events:
        assert not re.search(r"[,|\s]", event.name)
        assert event.text
        assert "Linux " in event.source
        assert event.flags in ("u", "uk")
        assert event.counters == 0 or event.type != SOFTWARE
    for forms in TABLES[uarch].sets.values():
        for form in forms:
            columns = ["cycles", "instructions", "task_clock", *(e.name for e in form.events)]
            given_by = pmu.metrics(row(**dict.fromkeys(columns, 1.0)), uarch).columns
            assert set(form.gives) <= set(given_by)
            assert form.optional <= {e.name for e in form.events}


# ── choosing ─────────────────────────────────────────────────────────────────────────────────


def test_five_counters_on_zen5_hold_level_one_in_one_group() -> None:
    choice = pmu.choose("amd_zen5", 5)
    assert names(choice) == [
        ["cycles", "instructions", "slots_frontend", "slots_backend", "ops_retired", "task_clock"]
    ]
    assert (choice.multiplexed, choice.notes) == (1, ())


def test_six_counters_on_zen5_check_bad_speculation() -> None:
    assert "ops_dispatched" in names(pmu.choose("amd_zen5", 6))[0]


def test_four_counters_give_what_one_group_can_and_say_what_it_cannot() -> None:
    choice = pmu.choose("amd_zen5", 4)
    assert names(choice) == [
        ["cycles", "instructions", "slots_frontend", "slots_backend", "task_clock"]
    ]
    assert "retiring, bad_speculation" in choice.notes[0]


def test_half_of_a_ratio_is_not_worth_a_counter() -> None:
    # Without OP_SPEC, OP_RETIRED gives nothing on Neoverse.
    assert "ops_retired" not in names(pmu.choose("neoverse_v2", 5))[0]
    assert "ops_dispatched" not in names(pmu.choose("intel_skylake", 5))[0]


@pytest.mark.parametrize("uarch", ["intel_icelake", "intel_sapphire", "intel_granite"])
def test_perf_metrics_are_led_by_slots_and_take_no_counter(uarch: str) -> None:
    (group,) = pmu.choose(uarch, 2).groups
    assert [e.name for e in group[:5]] == [
        "slots",
        "topdown_retiring",
        "topdown_bad_spec",
        "topdown_fe_bound",
        "topdown_be_bound",
    ]
    assert {"cycles", "instructions", "task_clock"} <= {e.name for e in group}
    together = pmu.choose(uarch, 5, wanted=("cache", "topdown"))
    assert together.multiplexed == 1
    assert together.groups[0][0].name == "slots"


def test_a_vm_without_perf_metrics_counts_slots() -> None:
    assert "slots_backend" in names(pmu.choose(cpu_of("intel_sapphire", virtual=True), 6))[0]
    counted = {"cycles", "instructions", "slots_frontend", "slots_backend", "ops_retired"}
    choice = pmu.choose("intel_sapphire", 6, working=counted)
    assert set(names(choice)[0]) == {*counted, "task_clock"}
    metrics = pmu.choose(
        cpu_of("intel_sapphire", virtual=True),
        6,
        working={*counted, "slots"}
        | {f"topdown_{x}" for x in ("retiring", "bad_spec")}
        | {"topdown_fe_bound", "topdown_be_bound"},
    )
    assert names(metrics)[0][0] == "slots"


@pytest.mark.parametrize("fits", [0, 1, 2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("uarch", UARCHES)
@pytest.mark.parametrize("wanted", [("auto",), ("topdown", "cache"), ("tlb", "branch", "generic")])
def test_every_group_fits_and_everything_wanted_is_counted(
    uarch: str, fits: int, wanted: tuple[str, ...]
) -> None:
    known = pmu.sets(uarch)
    wanted = tuple(w for w in wanted if w in known or w == "auto") or ("auto",)
    choice = pmu.choose(uarch, fits, wanted=wanted)
    hardware = [e.name for e in choice.events if e.type != SOFTWARE]
    assert all(sum(e.counters for e in group) <= fits for group in choice.groups)
    assert all("task_clock" in group for group in names(choice))
    assert all(len(set(group)) == len(group) for group in names(choice))
    assert choice.multiplexed == len(choice.groups)
    assert (choice.multiplexed > 1) == any("take turns" in note for note in choice.notes)
    if fits == 0:
        assert hardware == []
        assert {"page_faults", "context_switches"} <= {e.name for e in choice.events}
        return
    assert all(group[0].type != SOFTWARE for group in choice.groups), "hardware leads"
    assert "cycles" in hardware
    if wanted == ("auto",):
        assert choice.multiplexed == 1
    else:
        needed = {
            e.name for w in wanted for e in known[w].events if e.name not in known[w].optional
        }
        assert needed | {"instructions"} <= set(hardware)
        given_by = pmu.metrics(row(**dict.fromkeys(hardware, 1.0)), uarch).columns
        assert {m for w in wanted for m in known[w].gives} - {"smt_contention"} <= set(given_by)
    if fits >= 2:
        assert all("cycles" in group for group in names(choice)), "each group is on its own"


def test_groups_share_what_room_there_is() -> None:
    choice = pmu.choose("amd_zen5", 5, wanted=("branch", "cache", "dram_loads"))
    assert [set(g) - {"cycles", "instructions", "task_clock"} for g in names(choice)] == [
        {"branch_misses", "branches"},
        {"l1d_misses", "l2_misses", "llc_misses"},
        {"dram_loads"},
    ]
    assert "3 groups take turns on 5 counters" in choice.notes[-1]


def test_what_does_not_count_rightly_is_left_out_and_said() -> None:
    choice = pmu.choose("amd_zen5", 5, working={"cycles", "instructions", "slots_frontend"})
    assert names(choice) == [["cycles", "instructions", "slots_frontend", "task_clock"]]
    assert any(note.startswith("ops_retired does not count rightly") for note in choice.notes)


def test_nothing_that_counts_rightly_leaves_software_events() -> None:
    choice = pmu.choose("amd_zen5", 5, working=())
    assert names(choice) == [["task_clock", "page_faults", "context_switches"]]
    assert choice.notes[-1] == "no hardware event counts rightly: software events only"


def test_an_unknown_cpu_gets_generic_events_and_is_told() -> None:
    choice = pmu.choose("riscv_something", 6)
    assert names(choice)[0][:4] == [
        "cycles",
        "instructions",
        "stalled_cycles_frontend",
        "stalled_cycles_backend",
    ]
    assert choice.notes == ("unknown CPU: generic events, no top-down shares",)


def test_single_events_and_raw_spellings_join_the_group() -> None:
    choice = pmu.choose(
        "amd_zen5", 6, wanted=("dram_loads", "r01c0", "cpu/event=0x1c2,umask=0x00/uk", "faults")
    )
    (group,) = choice.groups
    assert [e.name for e in group] == [
        "cycles",
        "instructions",
        "dram_loads",
        "r01c0",
        "cpu_event_0x1c2_umask_0x00_uk",
        "task_clock",
        "page_faults",
    ]
    assert (group[3].type, group[3].config) == (4, 0x1C0)
    assert (group[4].type, group[4].config, group[4].flags) == ("cpu", 0x1000000C2, "uk")


def test_without_a_pmu_what_was_asked_for_is_named() -> None:
    choice = pmu.choose("amd_zen5", 0, wanted=("r01c0",))
    assert choice.notes == (
        "no hardware counters here: not counted: r01c0",
        "no hardware counters: software events only",
    )


def test_asking_for_software_alone_is_no_complaint() -> None:
    choice = pmu.choose("amd_zen5", 5, wanted=("software",))
    assert names(choice) == [["task_clock", "page_faults", "context_switches"]]
    assert choice.notes == ()


@pytest.mark.parametrize(
    "word",
    [
        *("", "nonsense", "cycles:x", "rxyz", "cpu/event=/", "cpu/event=0x1000/", "cpu/what=1/"),
        *("breakpoint/x=1/", "cpu/event=1/q", "r" + "f" * 17, "a" * 300, "cycles:u:k"),
    ],
)
def test_what_is_not_understood_is_refused_in_one_line(word: str) -> None:
    with pytest.raises(Unusable) as caught:
        pmu.choose("amd_zen5", 5, wanted=(word,))
    assert "\n" not in str(caught.value)
    assert "lotus doctor" in str(caught.value)


# ── spelling ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("uarch", "name", "spelling"),
    [
        ("amd_zen5", "slots_frontend", "cpu/event=0x1a0,umask=0x01/u"),
        ("amd_zen5", "ops_retired", "cpu/event=0xc1,umask=0x00/u"),
        ("intel_icelake", "slots", "cpu/event=0x00,umask=0x04/u"),
        ("neoverse_v1", "slots_frontend", "r3e:u"),
        ("amd_zen5", "context_switches", "context-switches:uk"),
        ("amd_zen5", "branch_misses", "branch-misses:u"),
    ],
)
def test_events_are_spelt_for_perf(uarch: str, name: str, spelling: str) -> None:
    (event,) = (e for e in every_event(uarch) if e.name == name)
    assert pmu.perf_name(event) == spelling


@pytest.mark.parametrize("uarch", UARCHES)
def test_what_is_spelt_is_read_back(uarch: str) -> None:
    for event in every_event(uarch):
        back = pmu.parse(pmu.perf_name(event))
        assert (back.type, back.config, back.config1, back.flags) == (
            event.type,
            event.config,
            event.config1,
            event.flags,
        )


@given(
    st.builds(
        Event,
        name=st.just("x"),
        type=st.sampled_from(["cpu", "cpu_core", "armv8_pmuv3_0", 4]),
        config=st.integers(0, 2**64 - 1),
        config1=st.just(0),
        flags=st.sampled_from(["u", "k", "uk"]),
    )
)
def test_any_config_survives_its_spelling(event: Event) -> None:
    back = pmu.parse(pmu.perf_name(event))
    assert (back.type, back.config, back.flags) == (event.type, event.config, event.flags)


def test_terms_and_names_of_pmu_events() -> None:
    event = pmu.parse("cpu/event=0x0d,umask=0x1,cmask=1,edge,inv=1,name=recoveries/k")
    assert event.config == 0x0D | 1 << 8 | 1 << 18 | 1 << 23 | 1 << 24
    assert (event.name, event.flags) == ("recoveries", "k")
    assert pmu.perf_name(event) == "cpu/event=0x0d,umask=0x01,edge,inv,cmask=0x1/k"


@given(st.text(max_size=60) | st.from_regex(r"[a-z0-9_]{1,8}/[a-z0-9=,x]{0,30}/[uk]{0,2}"))
def test_any_text_is_an_event_or_refused(text: str) -> None:
    try:
        event = pmu.parse(text)
    except Unusable:
        return
    assert not re.search(r"[,|\s]", event.name)
    assert 0 <= event.config < 1 << 64


def test_a_pmus_number_comes_from_sysfs(tmp_path: Path) -> None:
    event = pmu.parse("armv8_pmuv3_0/event=0x3e/")
    with pytest.raises(Unusable, match="no PMU 'armv8_pmuv3_0'"):
        pmu.resolve(event, tmp_path)
    device = tmp_path / "bus/event_source/devices/armv8_pmuv3_0"
    device.mkdir(parents=True)
    (device / "type").write_text("10\n")
    assert pmu.resolve(event, tmp_path) == 10
    (device / "type").write_text("ten\n")
    with pytest.raises(Unusable):
        pmu.resolve(event, tmp_path)
    assert pmu.resolve(pmu.parse("r3e"), tmp_path) == 4


def test_of_a_set_of_which_nothing_works_cycles_and_instructions_are_left():
    choice = pmu.choose("neoverse_n1", 6, working=["cycles", "instructions"], wanted=("cache",))
    names = [e.name for e in choice.events]
    assert names[:2] == ["cycles", "instructions"]
    assert not any("software events only" in note for note in choice.notes)
    software = pmu.choose("neoverse_n1", 6, wanted=("page-faults",))
    assert {e.type for e in software.events} == {SOFTWARE}


def test_what_is_counted_in_other_modes_has_another_name():
    choice = pmu.choose("amd_zen5", 6, wanted=("r8", "r8:k", "r8:uk", "instructions:uk"))
    found = {e.name: e.flags for e in choice.events if e.type != SOFTWARE}
    assert {"r8": "u", "r8_k": "k", "r8_uk": "uk", "instructions_uk": "uk"}.items() <= found.items()
    assert found["instructions"] == "u"


def test_a_set_that_this_cpu_lacks_is_told_as_such():
    with pytest.raises(Unusable, match="has no events of the set 'memory'"):
        pmu.choose("neoverse_n1", 6, wanted=("memory",))
