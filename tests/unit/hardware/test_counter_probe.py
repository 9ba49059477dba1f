"""Counters are believed only as far as loops of known work prove them: against made kernels, which
lie as real ones do, and against this one as far as it lets us."""

import errno
import os

import pytest

from lotus.hardware import counter_probe
from lotus.hardware.counter_probe import CPU_CLOCK, CYCLES, GENERIC, INSTRUCTIONS, Probe
from lotus.inside.common.perf_event import SOFTWARE, Event
from tests.unit.kernels import Kernel


def probe(kernel: Kernel) -> Probe:
    return Probe(kernel.open, lambda: None)


# ── one event ────────────────────────────────────────────────────────────────────────────────


def test_an_event_that_reads_0_where_it_cannot_is_broken_whatever_its_running_time():
    probed = probe(Kernel(zero=["cycles"]))
    counted = probed.alone(CYCLES)
    assert (counted.state, counted.count, counted.running) == ("zero", 0, 1.0)
    assert probed.alone(INSTRUCTIONS).state == "counts"
    assert probed.works(INSTRUCTIONS)
    assert not probed.works(CYCLES)


def test_an_event_that_may_truly_be_0_is_not_called_broken():
    quiet = Event("cpu_migrations", SOFTWARE, 4)
    assert probe(Kernel(zero=["cpu_migrations"])).alone(quiet).state == "counts"


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (errno.EACCES, "refused"),
        (errno.EPERM, "refused"),
        (errno.ENOENT, "absent"),
        (errno.EOPNOTSUPP, "absent"),
        (errno.ENOSYS, "absent"),
    ],
)
def test_a_refusal_is_told_from_an_absence(code, state):
    counted = probe(Kernel(refusal=code)).alone(CYCLES)
    assert (counted.state, counted.count, counted.error) == (state, None, code)


def test_each_event_is_asked_alone_only_once_and_closed():
    kernel = Kernel()
    probed = probe(kernel)
    for _ in range(3):
        probed.alone(CYCLES)
    assert kernel.opened == [["cycles"]]
    assert kernel.still_open == 0


# ── groups ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("last_fails", [True, False])
def test_five_of_six_announced_counters_are_found_whichever_fails(last_fails):
    kernel = Kernel(announced=6, right=5, last_fails=last_fails)
    capacity = probe(kernel).largest(GENERIC)
    assert (capacity.announced, capacity.right, capacity.bounded) == (6, 5, True)
    assert capacity.wrong == (GENERIC[5 if last_fails else 0].name,)
    assert kernel.still_open == 0


def test_a_group_is_filled_up_by_repeating_the_events_that_work():
    broken = [event.name for event in GENERIC[2:]]
    assert probe(Kernel(announced=6, right=6, zero=broken)).largest(GENERIC).right == 6


def test_without_hardware_events_nothing_fits():
    capacity = probe(Kernel(hardware=False)).largest(GENERIC)
    assert (capacity.announced, capacity.right, capacity.wrong) == (0, 0, ())


def test_a_group_that_is_multiplexed_does_not_fit():
    probed = probe(Kernel(running=0.49))
    assert not probed.fits([CYCLES, INSTRUCTIONS])
    capacity = probed.largest(GENERIC)
    assert capacity.right == 1
    assert capacity.running == pytest.approx(0.49, abs=0.01)


def test_a_broken_event_fits_no_group():
    probed = probe(Kernel(zero=["cycles"]))
    assert not probed.fits([CYCLES])
    assert not probed.fits([INSTRUCTIONS, CYCLES])
    assert probed.fits([INSTRUCTIONS])


def test_noise_that_does_not_come_again_condemns_no_group():
    class Noisy(Kernel):
        def open(self, events):
            counters = super().open(events)
            if len(events) > 1 and self.opened.count(self.opened[-1]) == 1:
                counters.steps = [step * 40 for step in counters.steps]
            return counters

    assert probe(Noisy()).fits([CYCLES, INSTRUCTIONS])


def test_an_odd_count_alone_condemns_no_group():
    """GIVEN an event whose first count alone was three times too high, as stalls are at times
    WHEN a group of it is tried THEN it is counted alone once more before the group is condemned."""

    class Odd(Kernel):
        def open(self, events):
            counters = super().open(events)
            if self.opened.count(["instructions"]) == 1 and len(events) == 1:
                counters.steps = [step * 3 for step in counters.steps]
            return counters

    probed = probe(Odd())
    probed.alone(INSTRUCTIONS)
    assert probed.fits([CYCLES, INSTRUCTIONS])


def test_a_count_of_0_in_a_group_condemns_it_at_once():
    """GIVEN a sixth counter that reads 0, first in the group and, later, alone as well
    THEN the group is condemned, however often the event is counted again."""

    class Silent(Kernel):
        def open(self, events):
            counters = super().open(events)
            if len(events) > 1 or self.opened.count(["instructions"]) > 1:
                counters.steps[-1] = 0
            return counters

    wrong, running = probe(Silent()).wrong([CYCLES, INSTRUCTIONS])
    assert (wrong, running) == (["instructions"], 1.0)


def test_slots_of_another_thread_may_truly_be_0():
    smt = Event("slots_smt", 4, 0x60)
    assert probe(Kernel(zero=["slots_smt"])).alone(smt).state == "counts"


def test_counts_far_from_those_alone_condemn_a_group():
    class Wrong(Kernel):
        def open(self, events):
            counters = super().open(events)
            if len(events) > 1:
                counters.steps[1] = counters.steps[1] // 4
            return counters

    wrong, running = probe(Wrong()).wrong([CYCLES, INSTRUCTIONS])
    assert (wrong, running) == (["instructions"], 1.0)


# ── what it costs ────────────────────────────────────────────────────────────────────────────


def test_the_cost_of_a_reading_is_what_events_count_between_two():
    kernel = Kernel()
    cost = counter_probe.cost([CYCLES, Event("page_faults", SOFTWARE, 2)], kernel.open)
    assert cost.counts == {"cycles": 100_000, "page_faults": 16}
    assert cost.read_ns >= 0
    assert cost.clock_ns > 0
    assert kernel.still_open == 0


# ── this machine's own kernel ────────────────────────────────────────────────────────────────


@pytest.fixture
def software_events():
    counted = Probe().alone(CPU_CLOCK)
    if counted.count is None:
        pytest.skip(f"this kernel refuses software events: {os.strerror(counted.error)}")


@pytest.mark.usefixtures("software_events")
def test_the_known_loop_does_what_it_says():
    probed = Probe()
    faults = probed.alone(Event("page_faults", SOFTWARE, 2))
    assert faults.count is not None
    assert faults.count >= 16
    assert probed.works(Event("task_clock", SOFTWARE, 1))


@pytest.mark.usefixtures("software_events")
def test_clocks_that_do_not_lead_their_group_are_counted_from_the_first():
    clock, faults = Event("task_clock", SOFTWARE, 1), Event("page_faults", SOFTWARE, 2)
    assert Probe().fits([faults, clock])


def test_hardware_events_count_where_this_machine_has_them():
    counted = Probe().alone(INSTRUCTIONS)
    if counted.count is None:
        pytest.skip(f"no hardware counters here: {os.strerror(counted.error)}")
    # 10,000 rounds of Python: millions of instructions, whatever the interpreter
    assert counted.state == "counts"
    assert counted.count > 300_000
