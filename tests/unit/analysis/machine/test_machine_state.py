"""What the machine did in the loops, and how the report says it."""

import io
import math
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from lotus.analysis.machine.machine_state import MachineState
from lotus.analysis.summary import summarise
from lotus.reporters.base.console import plain_console
from lotus.reporters.run import run_document, terminal
from lotus.reporters.run.parts.machine_words import machine_words
from tests.unit.simulated import Plan


def run_of(**counters: list[float]) -> tuple[SimpleNamespace, float]:
    """A loop with readings of the machine at its two ends, and its length in ns."""
    run = Plan(operations={"Slow": 20.0}, cores=2).run()
    begin, end = (run.epochs[name].iloc[0] for name in ("start_ns", "end_ns"))
    run.machine = pd.DataFrame({"time_ns": [begin, end], **counters})
    return run, float(end - begin)


def state_of(run: SimpleNamespace) -> MachineState:
    return summarise(run).loaders[0].machine


def test_counters_of_the_machine_are_rates_and_shares_of_the_loop() -> None:
    _, loop = run_of()
    run, _ = run_of(
        disk_read_bytes=[7e9, 7e9 + 3e6 * loop / 1e9],
        disk_written_bytes=[0, 100],
        io_stall_ns=[0, 0.25 * loop],
        memory_stall_ns=[5, 5],
        throttled_ns=[1e9, 2e9],
        available_bytes=[8e9, 5e9],
        frequency_khz=[3_100_000, 2_000_000],
    )
    state = state_of(run)
    assert state.disk_read_bytes_per_s == pytest.approx(3e6, rel=1e-3)
    assert state.io_stall_share == pytest.approx(0.25)
    assert (state.memory_stall_share, state.throttled_ns) == (0.0, pytest.approx(1e9))
    assert (state.available_bytes, state.least_mhz, state.most_mhz) == (5e9, 2000, 3100)
    words = machine_words(state)
    assert "local disks: 2.86 MiB read a second" in words
    assert "some thread waited for a disk for 25% of the time" in words
    assert "a CPU quota held threads back for 1.00 s" in words
    assert "CPUs at 2,000 to 3,100 MHz" in words
    assert "written" not in words  # by journals, at that rate
    assert "memory" not in words


def test_what_was_not_read_is_not_zero() -> None:
    for counters in (
        {},
        {"io_stall_ns": [-1, -1], "disk_read_bytes": [-1, 5], "stolen_ns": [-1, -1]},
    ):
        state = state_of(run_of(**counters)[0])
        assert math.isnan(state.io_stall_share)
        assert math.isnan(state.disk_read_bytes_per_s)
        assert math.isnan(state.stolen_share)
        assert machine_words(state) == ""
        document = run_document.document(summarise(run_of(**counters)[0]))
        assert document["loaders"][0]["machine"]["io_stall_share"] is None


def test_the_report_tells_who_had_the_cores() -> None:
    summary = summarise(run_of(io_stall_ns=[0, 0])[0])
    known = replace(summary.loaders[0].machine, own_share=0.5, others_share=0.2, stolen_share=0.0)
    assert machine_words(known) == "2 cores: this program 50%, others 20%, idle 30%"
    stolen = replace(known, stolen_share=0.1)
    assert (
        machine_words(stolen) == "2 cores: this program 50%, others 20%, hypervisor 10%, idle 20%"
    )
    file = io.StringIO()
    told = replace(summary, loaders=[replace(summary.loaders[0], machine=known)])
    terminal.write(plain_console(file), told)
    assert f"Machine     {machine_words(known)}" in " ".join(file.getvalue().split("\n  "))
