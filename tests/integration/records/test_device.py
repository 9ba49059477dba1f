"""Steps on an accelerator, here one that only counts time: what is recorded, and what is not
changed.
"""

import pytest

from tests.integration.conftest import Traced

MS = 1e6
STEPS = 6  # of each loop


@pytest.fixture(scope="module")
def both(pair) -> tuple[object, Traced]:
    return pair("on_device.py")


def test_the_program_is_the_same_also_when_the_device_is_lost(both) -> None:
    plain, traced = both
    assert (traced.code, traced.out, traced.err) == (plain.code, plain.out, plain.err)
    assert plain.code == 1
    assert plain.err.endswith(b"ValueError: the end\n")


def test_each_step_is_split_once_the_program_uses_the_device(both) -> None:
    waits = both[1].run.waits.sort_values("start_ns")
    assert waits.groupby("loader").size().tolist() == 4 * [STEPS]
    timed = waits["device_busy_ns"].notna()
    assert not timed[waits["loader"] == 0].any()
    # In use from the third batch on: so from the `next` after it.
    assert timed[waits["loader"] == 1].tolist() == [*3 * [False], *3 * [True]]
    assert timed[waits["loader"] == 2].all()
    whole = waits[timed]
    assert (whole["device_busy_ns"] >= 5 * MS - 1).all()  # as much as was launched
    assert (whole["device_idle_ns"].to_numpy() > 0).any()
    joined = both[1].run.batches
    assert joined["device_busy_ns"].notna().sum() == timed.sum()


def test_the_loss_of_the_device_is_a_note_and_ends_its_timing_only(both) -> None:
    run = both[1].run
    (note,) = [note for note in run.notes if "device" in note]
    assert note.startswith("the device is not timed any more: RuntimeError: device lost in")
    last = run.waits[run.waits["loader"] == 3]
    assert last["device_busy_ns"].notna().sum() < STEPS
    assert len(last) == STEPS
    assert not len(run.lost)
