"""What this machine can be sampled by: against made samplers, and against its own kernel."""

import errno
import itertools
import os
from pathlib import Path

import pytest

from lotus.hardware import sampling_probe
from lotus.hardware.counter_probe import CPU_CLOCK, CYCLES
from lotus.hardware.sampling_probe import ProbeSampling
from tests.unit.kernels import Samples, samplers


@pytest.fixture(autouse=True)
def loop_without_noise(monkeypatch):
    monkeypatch.setattr(sampling_probe, "_fixed_loop", lambda: 1_000_000)


def test_an_interrupt_costs_what_a_loop_takes_longer_a_sample(monkeypatch):
    times = iter([1_000_000, 2_000_000] * 12)
    monkeypatch.setattr(sampling_probe, "_fixed_loop", lambda: next(times))
    opened = samplers(cycles=Samples(100))
    assert sampling_probe.interrupt_cost(CYCLES, 4000, opened) == pytest.approx(10_000)


def test_a_cost_within_the_noise_is_not_told(monkeypatch):
    plain = [1_000_000, 1_200_000, 1_100_000, 1_150_000, 1_000_000, 1_200_000, 1_300_000]
    plain += plain
    times = iter([value for cost in plain for value in (cost, 1_050_000)])
    monkeypatch.setattr(sampling_probe, "_fixed_loop", lambda: next(times))
    assert sampling_probe.interrupt_cost(CYCLES, 4000, samplers(cycles=Samples(100))) is None


@pytest.mark.parametrize(
    ("rate", "expected"), [("100000", 997), ("1000", 997), ("996", 499), ("30", 30), (None, 997)]
)
def test_the_frequency_keeps_within_what_the_kernel_allows(tmp_path: Path, rate, expected):
    if rate is not None:
        folder = tmp_path / "proc/sys/kernel"
        folder.mkdir(parents=True)
        (folder / "perf_event_max_sample_rate").write_text(rate + "\n")
    assert sampling_probe.frequency(tmp_path) == expected


def test_cycles_are_sampled_on_bare_metal_and_the_clock_in_a_vm(tmp_path: Path):
    both = samplers(cycles=Samples(), cpu_clock=Samples())
    assert sampling_probe.sampling_event(False, both, tmp_path)[:2] == ("cycles:u", 997)
    event, _, why = sampling_probe.sampling_event(True, both, tmp_path)
    assert event == "cpu-clock:u"
    assert "VM" in why


@pytest.mark.parametrize("cycles", [errno.ENOENT, errno.EOPNOTSUPP, Samples(0)])
def test_where_cycles_give_no_samples_the_clock_does(tmp_path: Path, cycles):
    opened = samplers(cycles=cycles, cpu_clock=Samples())
    assert sampling_probe.sampling_event(False, opened, tmp_path)[0] == "cpu-clock:u"


def test_where_nothing_can_be_sampled_the_reason_is_given(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(sampling_probe, "perf_has_rights", lambda: False)
    opened = samplers(cycles=errno.EACCES, cpu_clock=errno.EACCES)
    event, frequency, why = sampling_probe.sampling_event(False, opened, tmp_path)
    assert (event, frequency) == ("", 0)
    assert "Permission denied" in why


def test_where_interrupts_are_dear_samples_are_fewer(tmp_path: Path, monkeypatch):
    times = itertools.cycle([1_000_000, 2_000_000])  # 20 samples for a millisecond: 50 µs each
    monkeypatch.setattr(sampling_probe, "_fixed_loop", lambda: next(times))
    event, frequency, why = sampling_probe.sampling_event(
        False, samplers(cycles=Samples(20)), tmp_path
    )
    assert (event, frequency) == ("cycles:u", 499)
    assert "less often" in why


def test_one_noisy_measure_does_not_make_samples_fewer(tmp_path: Path, monkeypatch):
    costs = iter([50_000.0, 1_000.0])
    monkeypatch.setattr(sampling_probe, "interrupt_cost", lambda *_: next(costs))
    opened = samplers(cycles=Samples(20))
    assert sampling_probe.sampling_event(False, opened, tmp_path)[:2] == ("cycles:u", 997)


@pytest.mark.parametrize(
    ("costs", "usual"), [([9e4, 2e3, 1e3], 2e3), ([None, 9e4, None], None), ([5.0, 5.0, None], 5.0)]
)
def test_the_usual_cost_is_the_middle_one(costs, usual, monkeypatch):
    measured = iter(costs)
    monkeypatch.setattr(sampling_probe, "interrupt_cost", lambda *_: next(measured))
    assert sampling_probe.usual_cost(CYCLES, 4000) == usual


def test_a_perf_that_has_rights_of_its_own_may_sample_where_we_may_not(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(sampling_probe, "perf_has_rights", lambda: True)
    opened = samplers(cpu_clock=errno.EACCES)
    assert sampling_probe.sampling_event(True, opened, tmp_path)[0] == "cpu-clock:u"
    # AND not where there is nothing to have rights to
    assert sampling_probe.sampling_event(True, samplers(cpu_clock=errno.ENOENT), tmp_path)[0] == ""


def test_samples_of_another_clock_are_noticed():
    assert sampling_probe.sample(
        CYCLES, 997, samplers(cycles=Samples(3, now=False))
    ) == ProbeSampling(CYCLES, 3, 0, 0, False)


def test_samples_of_this_kernel_carry_the_clock_that_lotus_uses():
    sampled = sampling_probe.sample(CPU_CLOCK, 499)
    if sampled.error:
        pytest.skip(f"this kernel refuses samples: {os.strerror(sampled.error)}")
    assert sampled.samples > 0
    assert sampled.monotonic
