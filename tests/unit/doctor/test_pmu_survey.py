"""The survey of a machine finds what works on it, and what does not."""

import errno
from pathlib import Path

from lotus.doctor.pmu_survey import survey
from lotus.hardware import sampling_probe
from lotus.inside.common.perf_event import Event
from tests.unit.kernels import Kernel, Samples, samplers


def test_a_survey_finds_what_works_and_what_does_not(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(sampling_probe, "_fixed_loop", lambda: 1_000_000)  # no noise
    kernel = Kernel(announced=6, right=5, zero=["cache_misses"], errors={"branches": errno.ENOENT})
    surveyed = survey(
        (Event("ops", 4, 0xC1),), kernel.open, samplers(cpu_clock=Samples()), tmp_path
    )
    states = {probed.event.name: probed.state for probed in surveyed.hardware}
    assert states["cache_misses"] == "zero"
    assert states["branches"] == "absent"
    assert states["ops"] == "counts"
    assert {probed.state for probed in surveyed.software} == {"counts"}
    assert surveyed.capacity.right == 5
    assert {sampler.event.name: sampler.samples for sampler in surveyed.samplers} == {
        "cycles": 0,
        "cpu_clock": 20,
    }
    assert surveyed.read is not None
    assert kernel.still_open == 0
