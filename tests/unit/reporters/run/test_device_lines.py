"""What the report says of an accelerator: of the loop, per batch, and in the document."""

import io
from typing import Any

import numpy as np

from lotus.analysis.common.scope import scopes
from lotus.analysis.machine.device_share import device_share
from lotus.analysis.summary import summarise
from lotus.reporters.base.console import plain_console
from lotus.reporters.run import run_document, short_report, terminal
from lotus.reporters.run.parts import coverage
from tests.unit.simulated import MS, Plan

LINE = (
    "The device was idle for at least 20% of the loop, with nothing to do while the program waited "
    "for data (for {} of its own time), and busy for at most 80%: by the device's clock, in 30 of "
    "40 steps. Expected gains count the program's own steps and do not account for the device."
)


def on_device() -> Any:
    """A loop that waits, whose device does not idle half as long; ten steps were not timed."""
    run = Plan(operations={"Slow": 20.0}, step=10.0).run()
    known = np.arange(len(run.waits)) >= 10
    run.waits = run.waits.assign(
        device_idle_ns=np.where(known, 4.0 * MS, np.nan),
        device_busy_ns=np.where(known, 16.0 * MS, np.nan),
    )
    return run


def flat(text: str) -> str:
    return " ".join(text.split())


def test_the_device_is_told_apart_from_the_programs_waiting() -> None:
    summary = summarise(on_device())
    device = summary.loaders[0].device
    assert device is not None
    assert (device.steps, device.taken, device.idle_ns) == (30, 40, 120 * MS)
    assert device.wait_share > 0.5 > 0.2 == device.idle_share
    (line,) = coverage.device(summary.loaders[0])
    assert line == LINE.format(f"{device.wait_share:.0%}")
    assert line in coverage.loader_lines(summary.loaders[0])  # of the terminal and the page
    file = io.StringIO()
    terminal.write(plain_console(file), summary)
    assert line in flat(file.getvalue())
    assert line in flat("\n".join(short_report.lines(summary)))


def test_it_is_a_row_of_the_batches_and_a_part_of_the_document() -> None:
    (loader,) = run_document.document(summarise(on_device()))["loaders"]
    rows = {row["measure"]: row for row in loader["batches"]}
    assert rows["device idle"]["count"] == rows["device busy"]["count"] == 30
    assert rows["device busy"]["p50_ns"] == 16 * MS
    assert loader["device"]["busy_ns"] == 480 * MS


def test_a_warm_up_is_not_part_of_it() -> None:
    run = Plan(batches=20, step=10.0, first_step=2000.0).run()
    busy = np.where(np.arange(len(run.waits)) == 0, 2000.0 * MS, 16.0 * MS)
    run.waits = run.waits.assign(device_idle_ns=4.0 * MS, device_busy_ns=busy)
    device = device_share(scopes(run)[0])
    assert device is not None
    assert device.idle_share == 0.2


def test_without_a_device_nothing_is_new() -> None:
    summary = summarise(Plan().run())
    (loader,) = run_document.document(summary)["loaders"]
    assert loader["device"] is None
    assert not [row for row in loader["batches"] if "device" in row["measure"]]
    assert "evice" not in "\n".join(short_report.lines(summary))
