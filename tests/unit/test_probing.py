"""Counters are believed only as far as loops of known work prove them: against made kernels, which
lie as real ones do, and against this one as far as it lets us."""

import errno
import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from lotus import probing
from lotus.errors import LotusError
from lotus.inside.perf_event import SOFTWARE, Event
from lotus.probing import CPU_CLOCK, CYCLES, GENERIC, INSTRUCTIONS, Probe, Sampled
from native_map import pmu
from native_map.cpu import Cpu

ZEN5 = Cpu("AuthenticAMD", 0x1A, 2, 1, "AMD EPYC", "x86_64", "amd_zen5", True)
SAPPHIRE = Cpu("GenuineIntel", 6, 0x8F, 8, "Intel Xeon", "x86_64", "intel_sapphire", False)
LONG_AGO = 1_000_000_000


class Kernel:
    """A made kernel: `announced` counters fit a group and the first `right` of it count.

    `last_fails` False: it is the first event that reads 0 in a group that is too large.
    """

    def __init__(
        self,
        announced: int = 6,
        right: int = 6,
        zero: Sequence[str] = (),
        errors: dict[str, int] | None = None,
        refusal: int = 0,
        hardware: bool = True,
        last_fails: bool = True,
        running: float = 1.0,
        needs_slots: bool = False,
    ) -> None:
        self.announced, self.right, self.zero = announced, right, set(zero)
        self.errors, self.refusal, self.hardware = errors or {}, refusal, hardware
        self.last_fails, self.running, self.needs_slots = last_fails, running, needs_slots
        self.opened: list[list[str]] = []
        self.still_open = 0

    def open(self, events: Sequence[Event]) -> "Counters":
        self.opened.append([one.name for one in events])
        for one in events:
            code = self.errors.get(one.name, self.refusal)
            if code == 0 and one.type != SOFTWARE and not self.hardware:
                code = errno.ENOENT
            if self.needs_slots and one.name.startswith("topdown_") and events[0].name != "slots":
                code = errno.EINVAL
            if code:
                raise OSError(code, os.strerror(code), one.name)
        taking = [
            one
            for one in events
            if one.type != SOFTWARE and one.name != "slots" and not one.name.startswith("topdown_")
        ]
        if len(taking) > self.announced:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self.still_open += 1
        failing = None
        if len(taking) > self.right:
            failing = taking[-1] if self.last_fails else taking[0]
        return Counters(self, events, failing, self.running if len(taking) > 1 else 1.0)


class Counters:
    def __init__(
        self, kernel: Kernel, events: Sequence[Event], failing: Event | None, running: float
    ) -> None:
        self.kernel, self.running, self.reads = kernel, running, 0
        self.steps = [
            0 if one.name in kernel.zero else 16 if one.name == "page_faults" else 100_000
            for one in events
        ]
        if failing is not None:
            place = max(p for p, one in enumerate(events) if one == failing)
            self.steps[place] = 0

    def read(self) -> bytes:
        self.reads += 1
        elapsed = self.reads * 1_000_000
        words = [len(self.steps), elapsed, int(elapsed * self.running)]
        words += [step * self.reads for step in self.steps]
        return struct.pack(f"<{len(words)}Q", *words)

    def unpack(self, reading: bytes) -> tuple[int, int, list[int]]:
        words = struct.unpack(f"<{len(reading) // 8}Q", reading)
        return words[1], words[2], list(words[3:])

    def close(self) -> None:
        self.kernel.still_open -= 1


class Samples:
    """A made sampler: `count` samples, of now or of another clock."""

    def __init__(self, count: int = 20, now: bool = True) -> None:
        self.times = [time.monotonic_ns() if now else LONG_AGO] * count

    def take(self) -> tuple[list[int], int]:
        return self.times, 0

    def close(self) -> None:
        pass


def samplers(**known: object):
    """Opens samplers of the events named, each a `Samples` or an errno."""

    def open_sampler(event: Event, frequency: int, period: int) -> Samples:
        found = known.get(event.name, errno.ENOENT)
        if isinstance(found, int):
            raise OSError(found, os.strerror(found))
        return found

    return open_sampler


@pytest.fixture
def choose(tmp_path: Path):
    """Chooses for a CPU under a made kernel, whose unit `cpu` has a number."""
    folder = tmp_path / "bus/event_source/devices/cpu"
    folder.mkdir(parents=True)
    (folder / "type").write_text("4\n")

    def run(kernel: Kernel, *wanted: str, cpu: Cpu = ZEN5) -> probing.Chosen:
        return probing.choose(wanted, kernel.open, cpu, tmp_path)

    return run


@pytest.fixture(autouse=True)
def loop_without_noise(monkeypatch):
    monkeypatch.setattr(probing, "_fixed_loop", lambda: 1_000_000)


def probe(kernel: Kernel) -> Probe:
    return Probe(kernel.open, lambda: None)


# ── one event ────────────────────────────────────────────────────────────────────────────────


def test_an_event_that_reads_0_where_it_cannot_is_broken_whatever_its_running_time():
    asked = probe(Kernel(zero=["cycles"]))
    counted = asked.alone(CYCLES)
    assert (counted.state, counted.count, counted.running) == ("zero", 0, 1.0)
    assert asked.alone(INSTRUCTIONS).state == "counts"
    assert asked.works(INSTRUCTIONS)
    assert not asked.works(CYCLES)


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
    asked = probe(kernel)
    for _ in range(3):
        asked.alone(CYCLES)
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
    broken = [one.name for one in GENERIC[2:]]
    assert probe(Kernel(announced=6, right=6, zero=broken)).largest(GENERIC).right == 6


def test_without_hardware_events_nothing_fits():
    capacity = probe(Kernel(hardware=False)).largest(GENERIC)
    assert (capacity.announced, capacity.right, capacity.wrong) == (0, 0, ())


def test_a_group_that_is_multiplexed_does_not_fit():
    asked = probe(Kernel(running=0.49))
    assert not asked.fits([CYCLES, INSTRUCTIONS])
    capacity = asked.largest(GENERIC)
    assert capacity.right == 1
    assert capacity.running == pytest.approx(0.49, abs=0.01)


def test_a_broken_event_fits_no_group():
    asked = probe(Kernel(zero=["cycles"]))
    assert not asked.fits([CYCLES])
    assert not asked.fits([INSTRUCTIONS, CYCLES])
    assert asked.fits([INSTRUCTIONS])


def test_noise_that_does_not_come_again_condemns_no_group():
    class Noisy(Kernel):
        def open(self, events):
            counters = super().open(events)
            if len(events) > 1 and self.opened.count(self.opened[-1]) == 1:
                counters.steps = [step * 40 for step in counters.steps]
            return counters

    assert probe(Noisy()).fits([CYCLES, INSTRUCTIONS])


def test_counts_far_from_those_alone_condemn_a_group():
    class Wrong(Kernel):
        def open(self, events):
            counters = super().open(events)
            if len(events) > 1:
                counters.steps[1] = counters.steps[1] // 4
            return counters

    wrong, running = probe(Wrong()).wrong([CYCLES, INSTRUCTIONS])
    assert (wrong, running) == (["instructions"], 1.0)


# ── choosing what to count ───────────────────────────────────────────────────────────────────


def test_the_group_chosen_is_no_larger_than_counts_rightly(choose):
    kernel = Kernel(announced=6, right=5)
    chosen = choose(kernel)
    hardware = [one for one in chosen.events if one.type != SOFTWARE]
    assert len(hardware) <= 5
    assert {"cycles", "instructions"} <= {one.name for one in hardware}
    assert chosen.uarch == "amd_zen5"
    assert kernel.still_open == 0


def test_enough_counters_give_level_1_of_top_down_and_fewer_say_what_is_left_out(choose):
    assert choose(Kernel(announced=8, right=8)).level_1
    few = choose(Kernel(announced=2, right=2))
    assert not few.level_1
    assert few.notes


def test_broken_events_are_never_chosen(choose):
    chosen = choose(Kernel(zero=["slots_backend"]))
    assert "slots_backend" not in {one.name for one in chosen.events}
    assert not chosen.level_1
    assert any("slots_backend" in note for note in chosen.notes)


def test_a_group_that_fails_as_a_whole_is_made_smaller(choose):
    class Picky(Kernel):
        """Counts any group of these events but the one that is chosen first, with the clock."""

        def open(self, events):
            counters = super().open(events)
            names = [one.name for one in events]
            if {"ops_dispatched", "task_clock"} <= set(names):
                counters.steps[names.index("ops_dispatched")] = 0
            return counters

    names = {one.name for one in choose(Kernel()).events}
    assert {"ops_dispatched", "task_clock"} <= names
    names = {one.name for one in choose(Picky()).events}
    assert "ops_dispatched" not in names
    assert "slots_backend" in names


def test_of_one_name_every_encoding_must_count():
    class Old(Kernel):
        """Knows the first of two encodings."""

        def open(self, events):
            if any(one.config == 2 for one in events):
                raise OSError(errno.EINVAL, "")
            return super().open(events)

    pairs = [(pmu.Event("misses", 4, config), Event("misses", 4, config)) for config in (1, 2)]
    assert probing._working(probe(Old()), pairs[:1]) == {"misses"}
    assert probing._working(probe(Old()), pairs) == set()


def test_intels_perf_metrics_are_tried_behind_their_leader(choose):
    kernel = Kernel(announced=8, right=8, needs_slots=True)
    chosen = choose(kernel, cpu=SAPPHIRE)
    assert chosen.events[0].name == "slots"
    assert chosen.level_1
    assert not any(names[0].startswith("topdown_") for names in kernel.opened)


def test_without_hardware_there_are_software_events_and_a_note(choose):
    chosen = choose(Kernel(hardware=False))
    assert {one.type for one in chosen.events} == {SOFTWARE}
    assert any("no hardware counters" in note for note in chosen.notes)


def test_a_software_event_that_the_kernel_refuses_is_left_out_with_a_note(choose):
    kernel = Kernel(hardware=False, errors={"context_switches": errno.EACCES})
    chosen = choose(kernel)
    names = [one.name for one in chosen.events]
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
    hardware = [[one for one in group if one.type != SOFTWARE] for group in chosen.groups]
    assert len(hardware) > 1
    assert all(0 < len(group) <= 4 for group in hardware)
    assert any("take turns" in note for note in chosen.notes)
    names = [one.name for one in chosen.events]
    assert len(names) == len(set(names))
    # The most telling set, by itself, takes no turns.
    assert len(choose(kernel, "auto").groups) == 1


def test_a_name_that_is_no_event_is_an_error_for_the_user(choose):
    with pytest.raises(LotusError, match="frobnicate"):
        choose(Kernel(), "frobnicate")


# ── what it costs ────────────────────────────────────────────────────────────────────────────


def test_the_cost_of_a_reading_is_what_events_count_between_two():
    kernel = Kernel()
    cost = probing.cost([CYCLES, Event("page_faults", SOFTWARE, 2)], kernel.open)
    assert cost.counts == {"cycles": 100_000, "page_faults": 16}
    assert cost.read_ns >= 0
    assert cost.clock_ns > 0
    assert kernel.still_open == 0


def test_an_interrupt_costs_what_a_loop_takes_longer_a_sample(monkeypatch):
    times = iter([1_000_000, 2_000_000] * 12)
    monkeypatch.setattr(probing, "_fixed_loop", lambda: next(times))
    opened = samplers(cycles=Samples(100))
    assert probing.interrupt_cost(CYCLES, 4000, opened) == pytest.approx(10_000)


def test_a_cost_within_the_noise_is_not_told(monkeypatch):
    plain = [1_000_000, 1_200_000, 1_100_000, 1_150_000, 1_000_000, 1_200_000, 1_300_000]
    plain += plain
    times = iter([value for one in plain for value in (one, 1_050_000)])
    monkeypatch.setattr(probing, "_fixed_loop", lambda: next(times))
    assert probing.interrupt_cost(CYCLES, 4000, samplers(cycles=Samples(100))) is None


# ── sampling ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rate", "expected"), [("100000", 997), ("1000", 997), ("996", 499), ("30", 30), (None, 997)]
)
def test_the_frequency_keeps_within_what_the_kernel_allows(tmp_path: Path, rate, expected):
    if rate is not None:
        folder = tmp_path / "proc/sys/kernel"
        folder.mkdir(parents=True)
        (folder / "perf_event_max_sample_rate").write_text(rate + "\n")
    assert probing.frequency(tmp_path) == expected


def test_cycles_are_sampled_on_bare_metal_and_the_clock_in_a_vm(tmp_path: Path):
    both = samplers(cycles=Samples(), cpu_clock=Samples())
    assert probing.sampling_event(False, both, tmp_path)[:2] == ("cycles:u", 997)
    event, _, why = probing.sampling_event(True, both, tmp_path)
    assert event == "cpu-clock:u"
    assert "VM" in why


@pytest.mark.parametrize("cycles", [errno.ENOENT, errno.EOPNOTSUPP, Samples(0)])
def test_where_cycles_give_no_samples_the_clock_does(tmp_path: Path, cycles):
    opened = samplers(cycles=cycles, cpu_clock=Samples())
    assert probing.sampling_event(False, opened, tmp_path)[0] == "cpu-clock:u"


def test_where_nothing_can_be_sampled_the_reason_is_given(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(probing, "perf_has_rights", lambda: False)
    opened = samplers(cycles=errno.EACCES, cpu_clock=errno.EACCES)
    event, frequency, why = probing.sampling_event(False, opened, tmp_path)
    assert (event, frequency) == ("", 0)
    assert "Permission denied" in why


def test_where_interrupts_are_dear_samples_are_fewer(tmp_path: Path, monkeypatch):
    times = iter([1_000_000, 2_000_000] * 12)  # 20 samples for a millisecond: 50 µs each
    monkeypatch.setattr(probing, "_fixed_loop", lambda: next(times))
    event, frequency, why = probing.sampling_event(False, samplers(cycles=Samples(20)), tmp_path)
    assert (event, frequency) == ("cycles:u", 499)
    assert "less often" in why


def test_a_perf_that_has_rights_of_its_own_may_sample_where_we_may_not(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(probing, "perf_has_rights", lambda: True)
    opened = samplers(cpu_clock=errno.EACCES)
    assert probing.sampling_event(True, opened, tmp_path)[0] == "cpu-clock:u"
    # AND not where there is nothing to have rights to
    assert probing.sampling_event(True, samplers(cpu_clock=errno.ENOENT), tmp_path)[0] == ""


def test_samples_of_another_clock_are_noticed():
    assert probing.sample(CYCLES, 997, samplers(cycles=Samples(3, now=False))) == Sampled(
        CYCLES, 3, 0, 0, False
    )


def test_a_survey_finds_what_works_and_what_does_not(tmp_path: Path):
    kernel = Kernel(announced=6, right=5, zero=["cache_misses"], errors={"branches": errno.ENOENT})
    found = probing.survey(
        (Event("ops", 4, 0xC1),), kernel.open, samplers(cpu_clock=Samples()), tmp_path
    )
    states = {one.event.name: one.state for one in found.hardware}
    assert states["cache_misses"] == "zero"
    assert states["branches"] == "absent"
    assert states["ops"] == "counts"
    assert {one.state for one in found.software} == {"counts"}
    assert found.capacity.right == 5
    assert {one.event.name: one.samples for one in found.samplers} == {"cycles": 0, "cpu_clock": 20}
    assert found.read is not None
    assert kernel.still_open == 0


# ── this machine's own kernel ────────────────────────────────────────────────────────────────


@pytest.fixture
def software_events():
    counted = Probe().alone(CPU_CLOCK)
    if counted.count is None:
        pytest.skip(f"this kernel refuses software events: {os.strerror(counted.error)}")


@pytest.mark.usefixtures("software_events")
def test_the_known_loop_does_what_it_says():
    asked = Probe()
    faults = asked.alone(Event("page_faults", SOFTWARE, 2))
    assert faults.count is not None
    assert faults.count >= 16
    assert asked.works(Event("task_clock", SOFTWARE, 1))


@pytest.mark.usefixtures("software_events")
def test_clocks_that_do_not_lead_their_group_are_counted_from_the_first():
    clock, faults = Event("task_clock", SOFTWARE, 1), Event("page_faults", SOFTWARE, 2)
    assert Probe().fits([faults, clock])


@pytest.mark.usefixtures("software_events")
def test_samples_of_this_kernel_carry_the_clock_that_lotus_uses():
    sampled = probing.sample(CPU_CLOCK, 499)
    if sampled.error:
        pytest.skip(f"this kernel refuses samples: {os.strerror(sampled.error)}")
    assert sampled.samples > 0
    assert sampled.monotonic


def test_hardware_events_count_where_this_machine_has_them():
    counted = Probe().alone(INSTRUCTIONS)
    if counted.count is None:
        pytest.skip(f"no hardware counters here: {os.strerror(counted.error)}")
    # 10,000 rounds of Python: millions of instructions, whatever the interpreter
    assert counted.state == "counts"
    assert counted.count > 300_000
