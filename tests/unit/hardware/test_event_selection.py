"""Of the events that are asked for, those are counted that count rightly together."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from lotus.common.errors import LotusError
from lotus.hardware import event_selection
from lotus.hardware.counter_probe import Probe
from lotus.inside.common.perf_event import SOFTWARE, Event
from native_map.events.cpu import Cpu
from native_map.events.event_model import Event as PmuEvent
from tests.unit.kernels import Kernel

ZEN5 = Cpu("AuthenticAMD", 0x1A, 2, 1, "AMD EPYC", "x86_64", "amd_zen5", True)
NEOVERSE = Cpu("ARM", 0x41, 0xD0C, 0x31, "Neoverse N1", "aarch64", "neoverse_n1", False)
SAPPHIRE = Cpu("GenuineIntel", 6, 0x8F, 8, "Intel Xeon", "x86_64", "intel_sapphire", False)

ICELAKE = Cpu("GenuineIntel", 6, 0x6A, 6, "Intel Xeon", "x86_64", "intel_icelake", False)


@pytest.fixture
def choose(tmp_path: Path):
    """Chooses for a CPU under a made kernel, whose unit `cpu` has a number."""
    folder = tmp_path / "bus/event_source/devices/cpu"
    folder.mkdir(parents=True)
    (folder / "type").write_text("4\n")

    def run(kernel: Kernel, *wanted: str, cpu: Cpu = ZEN5) -> event_selection.Chosen:
        return event_selection.choose(wanted, kernel.open, cpu, tmp_path)

    return run


def test_the_group_chosen_is_no_larger_than_counts_rightly(choose):
    kernel = Kernel(announced=6, right=5)
    chosen = choose(kernel)
    hardware = [event for event in chosen.events if event.type != SOFTWARE]
    assert len(hardware) <= 5
    assert {"cycles", "instructions"} <= {event.name for event in hardware}
    assert chosen.uarch == "amd_zen5"
    assert kernel.still_open == 0


def test_enough_counters_give_level_1_of_top_down_and_fewer_say_what_is_left_out(choose):
    assert choose(Kernel(announced=8, right=8)).level_1
    few = choose(Kernel(announced=2, right=2))
    assert not few.level_1
    assert few.notes


def test_broken_events_are_never_chosen(choose):
    chosen = choose(Kernel(zero=["slots_backend"]))
    assert "slots_backend" not in {event.name for event in chosen.events}
    assert not chosen.level_1
    assert any("slots_backend" in note for note in chosen.notes)


def test_a_group_that_fails_as_a_whole_is_made_smaller(choose):
    class Picky(Kernel):
        """Counts any group of these events but the one that is chosen first, with the clock."""

        def open(self, events):
            counters = super().open(events)
            names = [event.name for event in events]
            if {"ops_dispatched", "task_clock"} <= set(names):
                counters.steps[names.index("ops_dispatched")] = 0
            return counters

    names = {event.name for event in choose(Kernel()).events}
    assert {"ops_dispatched", "task_clock"} <= names
    names = {event.name for event in choose(Picky()).events}
    assert "ops_dispatched" not in names
    assert "slots_backend" in names


def test_of_one_name_every_encoding_must_count():
    class Old(Kernel):
        """Knows the first of two encodings."""

        def open(self, events):
            if any(event.config == 2 for event in events):
                raise OSError(errno.EINVAL, "")
            return super().open(events)

    pairs = [(PmuEvent("misses", 4, config), Event("misses", 4, config)) for config in (1, 2)]
    assert event_selection._working(Probe(Old().open, lambda: None), pairs[:1]) == {"misses"}
    assert event_selection._working(Probe(Old().open, lambda: None), pairs) == set()


def test_intels_perf_metrics_are_tried_behind_their_leader(choose):
    kernel = Kernel(announced=8, right=8, needs_slots=True)
    chosen = choose(kernel, cpu=SAPPHIRE)
    assert chosen.events[0].name == "slots"
    assert chosen.level_1
    assert not any(names[0].startswith("topdown_") for names in kernel.opened)


def test_level_2_of_perf_metrics_takes_no_counter_and_its_small_shares_may_read_0(choose):
    """GIVEN shares in steps of 1/255, two of which are 0 in the loop THEN all are counted, in one
    group that takes no turns, behind the slots register."""
    zero = ["topdown_heavy_ops", "topdown_mem_bound"]
    kernel = Kernel(announced=4, right=4, needs_slots=True, zero=zero)
    chosen = choose(kernel, "topdown2", cpu=SAPPHIRE)
    (group,) = chosen.groups
    names = [event.name for event in group]
    assert names[0] == "slots"
    assert sum(name.startswith("topdown_") for name in names) == 8
    assert {"cycles", "instructions", "task_clock"} <= {*names}
    assert not any("left out" in note for note in chosen.notes)


@pytest.mark.parametrize("uarch", ["neoverse_n2", "neoverse_v1", "neoverse_v2"])
def test_neoverse_counts_level_1_with_its_seven_counters_and_says_what_fewer_leave_out(
    choose, uarch
):
    cpu = Cpu("ARM", 0x41, 0xD40, 3, "Neoverse", "aarch64", uarch, False)
    chosen = choose(Kernel(announced=7, right=7), cpu=cpu)
    (group,) = chosen.groups
    assert chosen.level_1
    assert {event.name for event in group} == {
        *("cycles", "instructions", "slots_frontend", "slots_backend", "ops_retired"),
        *("ops_dispatched", "branch_misses_spec", "task_clock"),
    }
    few = choose(Kernel(announced=4, right=4), cpu=cpu)
    assert not few.level_1
    assert any("retiring, bad_speculation" in note for note in few.notes)


def test_a_vm_without_the_register_says_that_level_2_is_not_counted(choose):
    class Hidden(Kernel):
        def open(self, events):
            if any(event.name.startswith(("slots", "topdown_")) for event in events):
                raise OSError(errno.ENOENT, "")
            return super().open(events)

    chosen = choose(Hidden(), "topdown2", cpu=SAPPHIRE)
    assert {event.name for event in chosen.events} == {"cycles", "instructions", "task_clock"}
    assert any("topdown_mem_bound" in note for note in chosen.notes)


@pytest.mark.parametrize("cpu", [NEOVERSE, ICELAKE])
def test_level_2_where_the_cpu_has_none_is_refused_with_the_sets_it_has(choose, cpu):
    with pytest.raises(LotusError, match="has no events of the set 'topdown2'; it has topdown,"):
        choose(Kernel(), "topdown2", cpu=cpu)


def test_without_hardware_there_are_software_events_and_a_note(choose):
    chosen = choose(Kernel(hardware=False))
    assert {event.type for event in chosen.events} == {SOFTWARE}
    assert any("no hardware counters" in note for note in chosen.notes)


@pytest.mark.parametrize(
    ("wanted", "word"),
    [
        (["cache"], "so cache cannot be counted; counting software events instead"),
        (["topdown", "software", "cycles"], "so topdown, cycles cannot be counted"),
        ([], "counting software events (lotus doctor)"),
    ],
)
def test_a_machine_without_hardware_counters_is_told_in_one_line(choose, wanted, word):
    chosen = choose(Kernel(hardware=False), *wanted)
    (note,) = chosen.notes
    assert word in note
    assert note.startswith("this VM has no hardware counters")
    assert chosen.events


def test_software_events_lack_no_hardware(choose):
    assert choose(Kernel(hardware=False), "software").notes == ()


def test_hardware_counters_that_this_user_may_not_use_are_refused(choose):
    (note, *_) = choose(Kernel(refusal=errno.EACCES), "cache").notes
    assert note == (
        "the kernel refuses hardware counters to this user, so cache cannot be counted"
        " (lotus doctor)"
    )


def test_a_software_event_that_the_kernel_refuses_is_left_out_with_a_note(choose):
    kernel = Kernel(hardware=False, errors={"context_switches": errno.EACCES})
    chosen = choose(kernel)
    names = [event.name for event in chosen.events]
    assert "task_clock" in names
    assert "context_switches" not in names
    assert any("context_switches" in note for note in chosen.notes)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.ENOSYS])
def test_where_nothing_is_allowed_nothing_is_chosen_and_nothing_raised(choose, code):
    chosen = choose(Kernel(refusal=code))
    assert chosen.events == ()
    assert any(os.strerror(code) in note for note in chosen.notes)


def test_sets_that_do_not_fit_together_take_turns(choose):
    kernel = Kernel(announced=4, right=4)
    chosen = choose(kernel, "topdown", "tlb", "cache")
    hardware = [[event for event in group if event.type != SOFTWARE] for group in chosen.groups]
    assert len(hardware) > 1
    assert all(0 < len(group) <= 4 for group in hardware)
    assert any("take turns" in note for note in chosen.notes)
    names = [event.name for event in chosen.events]
    assert len(names) == len(set(names))
    # The most telling set, by itself, takes no turns.
    assert len(choose(kernel, "auto").groups) == 1


def test_a_name_that_is_no_event_is_an_error_for_the_user(choose):
    with pytest.raises(LotusError, match="frobnicate"):
        choose(Kernel(), "frobnicate")


@pytest.mark.parametrize("named", [[], [0x11], [0x11, 0x37]])
def test_an_arm_event_that_reads_0_counts_only_if_the_kernel_names_it(choose, tmp_path, named):
    """Numbers that the CPU does not have open all the same; misses may truly be 0."""
    folder = tmp_path / "bus/event_source/devices/armv8_pmuv3_0/events"
    folder.mkdir(parents=True)
    for number in named:
        (folder / f"number_{number}").write_text(f"event=0x{number:03x}\n")
    chosen = choose(Kernel(zero=["llc_misses"]), "cache", cpu=NEOVERSE)
    events = {event.name for event in chosen.events}
    assert {"cycles", "l2_misses"} <= events
    assert ("llc_misses" in events) == (named != [0x11])
    assert any("llc_misses" in note for note in chosen.notes) == (named == [0x11])


def test_counters_that_another_profiler_has_for_a_moment_are_tried_once_more(choose, monkeypatch):
    """GIVEN counters that are shared with somebody else while groups are tried for the first time
    WHEN they are free a moment later THEN level 1 is counted as if nothing had been."""
    kernel = Kernel(announced=5, right=5, running=0.5)

    def wait(seconds):
        kernel.running = 1.0

    monkeypatch.setattr(event_selection, "time", SimpleNamespace(sleep=wait))
    assert choose(kernel).level_1
