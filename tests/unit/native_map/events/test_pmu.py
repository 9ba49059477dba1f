"""Which events are counted together, on which CPU."""

import subprocess
import sys
from pathlib import Path

import pytest

from native_map.errors import UnusableError
from native_map.events import formulas, pmu
from native_map.events.event_model import SOFTWARE
from tests.unit.pmus import UARCHES, cpu_of, row


def names(choice: pmu.Choice) -> list[list[str]]:
    return [[e.name for e in group] for group in choice.groups]


def test_choosing_does_not_wait_for_numpy_or_pandas() -> None:
    script = (
        "import sys; from native_map.events import cpu, perf_list, pmu; "
        "pmu.choose(cpu.detect(), 5); "
        "sys.exit(bool({'numpy', 'pandas'} & set(sys.modules)))"
    )
    root = Path(pmu.__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", script], cwd=root, check=False).returncode == 0


def test_five_counters_on_zen5_hold_level_one_in_one_group() -> None:
    choice = pmu.choose("amd_zen5", 5)
    assert names(choice) == [
        ["cycles", "instructions", "slots_frontend", "slots_backend", "ops_retired", "task_clock"]
    ]
    assert choice.notes == ()


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
    assert len(together.groups) == 1
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
    assert (len(choice.groups) > 1) == any("take turns" in note for note in choice.notes)
    if fits == 0:
        assert hardware == []
        assert {"page_faults", "context_switches"} <= {e.name for e in choice.events}
        return
    assert all(group[0].type != SOFTWARE for group in choice.groups), "hardware leads"
    assert "cycles" in hardware
    if wanted == ("auto",):
        assert len(choice.groups) == 1
    else:
        needed = {
            e.name for w in wanted for e in known[w].events if e.name not in known[w].optional
        }
        assert needed | {"instructions"} <= set(hardware)
        given_by = formulas.metrics(row(**dict.fromkeys(hardware, 1.0)), uarch).columns
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
    assert any(note.startswith("ops_retired does not count correctly") for note in choice.notes)


def test_nothing_that_counts_rightly_leaves_software_events() -> None:
    choice = pmu.choose("amd_zen5", 5, working=())
    assert names(choice) == [["task_clock", "page_faults", "context_switches"]]
    assert choice.notes[-1] == "no hardware event counts correctly: software events only"


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
    with pytest.raises(UnusableError) as caught:
        pmu.choose("amd_zen5", 5, wanted=(word,))
    assert "\n" not in str(caught.value)
    assert "lotus doctor" in str(caught.value)


def test_of_a_set_of_which_nothing_works_cycles_and_instructions_are_left():
    choice = pmu.choose("neoverse_n1", 6, working=["cycles", "instructions"], wanted=("cache",))
    names = [e.name for e in choice.events]
    assert names[:2] == ["cycles", "instructions"]
    assert not any("software events only" in note for note in choice.notes)
    software = pmu.choose("neoverse_n1", 6, wanted=("page-faults",))
    assert {e.type for e in software.events} == {SOFTWARE}


def test_what_is_counted_in_other_modes_has_another_name():
    choice = pmu.choose("amd_zen5", 6, wanted=("r8", "r8:k", "r8:uk", "instructions:uk"))
    flags = {e.name: e.flags for e in choice.events if e.type != SOFTWARE}
    assert {"r8": "u", "r8_k": "k", "r8_uk": "uk", "instructions_uk": "uk"}.items() <= flags.items()
    assert flags["instructions"] == "u"


def test_a_set_that_this_cpu_lacks_is_told_as_such():
    with pytest.raises(UnusableError, match="has no events of the set 'memory'"):
        pmu.choose("neoverse_n1", 6, wanted=("memory",))
