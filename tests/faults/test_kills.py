"""After a SIGKILL of anybody: the others go on, the log is readable, what is lost is said."""

import os
import signal
import subprocess
import sys
import time

import pytest

from lotus.reading.logs import process_states


def kept(ended):
    """The run, after the losses that a kill may leave: send times, and nothing of a batch."""
    run = ended.run
    assert set(run.lost["what"]) <= {"send times of a batch", "truncated tail"}
    made = run.batches[run.batches["worker"] >= 0]
    unsent = made[made["send_start_ns"].isna()]
    lost = run.lost[run.lost["what"] == "send times of a batch"]
    assert lost["count"].sum() == len(unsent)
    for _, worker in made.groupby("worker"):  # without a gap before the end
        assert (
            worker["batch"].tolist() == list(range(worker["worker"].iloc[0], 99, 2))[: len(worker)]
        )
        # The feeder thread may be behind; what it did is written with the batch after.
        assert worker["send_start_ns"].isna().is_monotonic_increasing
    return run


@pytest.mark.parametrize(
    ("by", "method"), [("worker", "fork"), ("worker", "spawn"), ("itself", "fork")]
)
def test_a_killed_worker_leaves_its_batches_and_its_state(pair, by, method):
    plain, traced = pair("kill.py", by, method)
    assert (traced.code, traced.out) == (plain.code, plain.out) == (0, "RuntimeError\n")
    run = kept(traced)
    workers = run.workers.set_index("worker")
    assert workers.loc[1, "batches"] == 4  # all before the one in hand
    assert workers["end_ns"].isna()[1]
    epoch = run.epochs.iloc[0]
    assert not epoch["exhausted"]
    assert epoch["batches"] == (run.waits["failed"] == 0).sum()
    dead = next(state for state in process_states.read(traced.path) if state.worker == 1)
    assert (dead.phase, dead.batch, dead.sample) == ("fetch", 9, 27)


def test_a_killed_program_leaves_all_that_it_got(pair):
    plain, traced = pair("kill.py", "main", "fork")
    assert traced.code == plain.code == -signal.SIGKILL
    assert traced.out == plain.out
    run = kept(traced)
    assert run.manifest["signal"] == signal.SIGKILL
    assert run.waits["batch"].tolist() == list(range(6))
    assert run.waits["step_ns"].notna().tolist() == [True] * 5 + [False]
    main = next(state for state in process_states.read(traced.path) if state.worker == -1)
    assert (main.phase, main.batch) == ("step", 5)


def test_the_program_goes_on_without_lotus(pair):
    plain, traced = pair("kill.py", "lotus", "fork")
    # In the plain run it is not lotus that starts the program: nobody is killed there.
    assert traced.code == -signal.SIGKILL
    assert (traced.out, traced.err) == (plain.out, plain.err)
    run = kept(traced)
    assert run.manifest["state"] == "running"
    assert len(run.waits) == len(run.batches) == 16
    assert run.epochs["exhausted"].all()


def test_a_hang_has_a_name_while_it_lasts_and_after_a_kill(
    torch, lotus_command, tmp_path, programs
):
    path = tmp_path / "R"
    words = [
        *lotus_command,
        "trace",
        "-q",
        "-o",
        str(path),
        "--",
        sys.executable,
        programs / "hang.py",
    ]
    process = subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        matching, waits = [], False
        while not (matching and waits):
            assert process.poll() is None
            time.sleep(0.05)
            states = process_states.read(path)
            matching = [state for state in states if state.operation == "Decode"]
            waits = any(
                (state.worker, state.phase, state.batch) == (-1, "wait", 1) for state in states
            )
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        assert matching[0] in process_states.read(path)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    states = process_states.read(path)
    hanging = next(state for state in states if state.operation == "Decode")
    assert (hanging.worker, hanging.phase, hanging.batch, hanging.sample) == (1, "fetch", 1, 3)
    assert hanging.operation_since_ns >= hanging.sample_since_ns >= hanging.since_ns
    main = next(state for state in states if state.worker == -1)
    assert main.phase == "wait"
    assert main.loader == 0
