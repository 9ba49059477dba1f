"""What operations of real workers are blocked in, as the launcher sees it."""

import numpy as np
import pytest

from lotus.analysis.summary import summarise
from lotus.inside.trace.log import state_page
from tests.integration.conftest import PROGRAMS, PYTHON

NAMES = ("Sleep", "Lock")


@pytest.fixture(scope="module")
def run(torch, trace_command):
    # In a process of its own: one that was forked elsewhere is no descendant of the launcher.
    got = trace_command(PYTHON, PROGRAMS / "waits/blocked.py")
    assert (got.code, got.out, got.err) == (0, b"", b"")
    if not len(got.run.blocking):
        pytest.skip("; ".join(got.run.notes) or "the kernel does not tell")
    return got.run


def test_a_sleep_and_a_lock_that_workers_share_are_told_apart(run):
    looks = run.blocking.pivot_table(
        index="operation", columns="reason", values="looks", aggfunc="sum", fill_value=0
    )
    # A worker waits for its own interpreter too, the longer the slower the machine.
    sleep, lock = (looks.loc[name].drop(["computing", "lock"], errors="ignore") for name in NAMES)
    assert sleep["sleep"] > 0.9 * sleep.sum()
    assert lock["shared-lock"] > 0.2 * lock.sum()
    assert lock["shared-lock"] + lock["sleep"] > 0.9 * lock.sum()


def test_advice_follows_it(run):
    # Not the first cause: where the workers start slowly, that is first.
    causes = [cause for loader in summarise(run).loaders for cause in loader.verdict.causes]
    advice = {(cause.kind, cause.title.split()[0]): cause.advice for cause in causes}
    assert "overlap" in advice["operation", "Sleep"]
    assert "more workers will not help" in advice["shared-lock", "Lock"]


def test_the_time_of_a_fetch_adds_up(run):
    batches = run.batches
    blocked = batches["fetch_ns"] - batches["cpu_ns"] - batches["run_delay_ns"]
    if np.isnan(blocked).all():
        pytest.skip("this kernel does not tell how long a thread waited for a core")
    # Ten sleeps of 10 ms a batch, each at least as long. In single batches of a virtual machine,
    # time that the host took counts as time on a core.
    assert blocked.median() >= 0.99 * 100e6


def test_where_workers_wait_is_named(torch, trace_command, tmp_path):
    # GIVEN a worker that reads a FIFO, and one that asks a server, both of which are late
    fifo = tmp_path / "fifo"
    got = trace_command(PYTHON, PROGRAMS / "waits/blocked_at.py", fifo)
    assert (got.code, got.err) == (0, b"")
    if not len(got.run.blocking):
        pytest.skip("; ".join(got.run.notes) or "the kernel does not tell")
    # THEN the record has the file and the peer of nearly all looks that found it so
    for operation, reason, place in (
        ("Fifo", "file", str(fifo)),
        ("Server", "socket", got.out.decode().strip()),
    ):
        looks, places = (
            table[(table["operation"] == operation) & (table["reason"] == reason)]
            for table in (got.run.blocking, got.run.places)
        )
        assert set(places["place"]) == {place}
        assert all(bool(kind) == (reason == "file") for kind in places["file_system"])
        assert places["looks"].sum() > 0.5 * looks["looks"].sum()


def test_the_state_page_tells_a_step_from_the_time_between_loops(torch, trace_command):
    got = trace_command(PYTHON, PROGRAMS / "waits/phases.py", "R")
    phases = {"step": state_page.STEP, "between": state_page.BETWEEN}
    lines = [line.split() for line in got.out.decode().splitlines()]
    assert [int(phase) for _, phase in lines] == [phases[where] for where, _ in lines]
    assert len(lines) == 13
