"""One run of a sweep in numbers, from simulated loaders of which all is known."""

import numpy as np
import pandas as pd
import pytest

from lotus.settings.space import Setting
from lotus.sweep.run_numbers import (
    OUTSIDE,
    SEND,
    UNSPLIT,
    chosen,
    missing,
    named,
    not_as_set,
    peak_memory,
    rate,
    reduce,
)
from tests.unit.simulated import MS, Plan

# A batch: 4 samples of 2 + 0.5 + 0.05 ms, and 0.5 ms of collate.
FETCH_MS = 4 * 2.55 + 0.5


def recorded(**plan):
    """A run of 40 batches of 4 whose operations run on a CPU all of their time."""
    run = Plan(**{"level": "op+cpu", **plan}).run()
    run.ops["cpu_ns"] = run.ops["duration_ns"].astype(float)
    for name in ("minor_faults", "major_faults", "read_bytes"):
        run.ops[name] = 0
    run.batches["voluntary_switches"] = run.batches["involuntary_switches"] = 0
    run.counters = pd.DataFrame(columns=["loader"])
    run.processes = pd.DataFrame({"torch": ["2.14.1"]})
    return run


def counted(run, events):
    """`run.counters` with the same counts in every operation, and in collate; fetches hold all."""
    parts = []
    fields = {"rank": 0, "local_rank": -1, "world_size": 1, "host": "a", "tid": 1, "readings": 1,
              "enabled_ns": 10, "running_ns": 10, "scaled": False, "row": -1}  # fmt: skip
    keys = ["pid", "worker", "loader", "epoch", "batch", "duration_ns"]
    ops = run.ops.assign(operation=run.ops["operation"].astype(str))
    parts.append(ops[[*keys, "operation", "nested"]].assign(kind="operation", **events))
    batches = run.batches
    collate = batches.assign(duration_ns=batches["collate_ns"])[keys]
    parts.append(collate.assign(kind="collate", operation="", nested=False, **events))
    whole = batches.assign(duration_ns=batches["fetch_ns"])[keys]
    sums = {name: count * (4 * 2 + 1) for name, count in events.items()}
    parts.append(whole.assign(kind="fetch", operation="", nested=False, **sums))
    run.counters = pd.concat(parts, ignore_index=True).assign(**fields, start_ns=0, helper_ns=0.0)
    run.counters = run.counters.astype(dict.fromkeys(events, "float64"))
    return run


def test_the_loop_and_its_rate():
    numbers = reduce(recorded(workers=1, step=1.0), 0, elapsed_s=3.0, cpu_s=2.0)
    measures = numbers.measures
    assert numbers.loader == "ImageFolder at train.py:31"
    assert measures["samples"] == 160
    assert measures["samples_per_s"] == pytest.approx(160 / measures["loop_s"])
    assert measures["elapsed_s"] == 3.0
    assert measures["utilisation"] == pytest.approx(2.0 / (3.0 * 8))
    assert measures["step_share"] == pytest.approx(0.040 / measures["loop_s"], rel=0.05)
    assert measures["wait_share"] == pytest.approx(1 - 0.040 / measures["loop_s"], rel=0.05)
    assert rate(recorded(workers=1), 0) == pytest.approx(measures["samples_per_s"])


def test_what_a_sample_costs():
    measures = reduce(recorded(workers=2, cpu=0.5), 0).measures
    assert measures["wall_us_per_sample"] == pytest.approx(1e3 * FETCH_MS / 4)
    assert measures["cpu_us_per_sample"] == pytest.approx(0.5e3 * FETCH_MS / 4)
    assert measures["fetch_cpu_s"] == pytest.approx(40 * 0.5e-3 * FETCH_MS)
    assert np.isnan(measures["cpu_s"])


def test_who_has_a_core_and_who_waits_for_something_else():
    run = recorded(workers=2, cpu=0.5)
    run.batches["voluntary_switches"], run.batches["involuntary_switches"] = 1, 3
    measures = reduce(run, 0).measures
    assert measures["queue_share"] == pytest.approx(0.375)
    assert measures["off_share"] == pytest.approx(0.125)


def test_only_as_much_waiting_is_for_storage_as_was_read():
    run = recorded(workers=2, cpu=0.5, read_bytes=0)
    run.batches["voluntary_switches"] = 1
    assert reduce(run, 0).measures["storage_share"] == 0
    run = recorded(workers=2, cpu=0.5, read_bytes=1 << 20)
    run.batches["voluntary_switches"] = 1
    measures = reduce(run, 0).measures
    assert measures["storage_share"] == pytest.approx(measures["off_share"]) == pytest.approx(0.5)
    assert measures["read_bytes"] == 160 << 20


def test_cpu_seconds_add_up_to_those_of_the_command():
    run = recorded(workers=2)
    run.batches["send_ns"] = run.batches["pickle_ns"] + run.batches["write_ns"]
    operations = reduce(run, 0, elapsed_s=3.0, cpu_s=2.0).operations
    used = operations.set_index("operation")["cpu_s"]
    assert used["Loader"] == pytest.approx(160 * 2e-3)
    assert used["Normalize"] == pytest.approx(160 * 0.5e-3)
    assert used[UNSPLIT] == pytest.approx(40 * (4 * 0.05 + 0.5) * 1e-3)
    assert np.isnan(used[SEND])  # its CPU time is not recorded: that is not zero
    assert used.sum() == pytest.approx(2.0)
    assert used[OUTSIDE] == pytest.approx(2.0 - 40 * FETCH_MS * 1e-3)


def test_operations_whose_cpu_time_was_not_recorded_leave_the_rest_unknown():
    run = recorded(workers=2)
    run.ops["cpu_ns"] = np.nan
    operations = reduce(run, 0, cpu_s=2.0).operations.set_index("operation")
    assert np.isnan(operations["cpu_s"][UNSPLIT])
    assert OUTSIDE not in operations.index
    assert operations["wall_s"]["Loader"] == pytest.approx(160 * 2e-3)


def test_counted_slots_per_operation_and_of_all_fetches():
    events = {"task_clock": 0.2 * MS, "cycles": 1000.0, "instructions": 2000.0}
    events |= {"slots_frontend": 2000.0, "slots_backend": 4000.0, "dram_loads": 5.0}
    run = counted(recorded(workers=2), events)
    run.manifest["uarch"] = "amd_zen5"  # 8 slots a cycle
    numbers = reduce(run, 0)
    loader = numbers.operations.set_index("operation").loc["Loader"]
    assert loader["ipc"] == 2.0
    assert loader["frontend_bound"] == pytest.approx(0.25)
    assert loader["backend_bound"] == pytest.approx(0.5)
    assert loader["frontend_lost"] == pytest.approx(0.25 * 1000 * 160)
    assert loader["dram_loads"] == 5 * 160
    assert numbers.measures["ipc"] == 2.0
    assert numbers.measures["backend_bound"] == pytest.approx(0.5)
    assert numbers.measures["dram_loads_per_sample"] == pytest.approx(5 * 9 / 4)
    assert numbers.measures["backend_lost_per_sample"] == pytest.approx(0.5 * 1000 * 9 / 4)
    # Collate has a clock of its own, so it stands apart.
    used = numbers.operations.set_index("operation")["cpu_s"]
    assert used["collate"] == pytest.approx(40 * 0.2e-3)
    assert UNSPLIT not in used.index


def test_what_was_not_counted_is_absent():
    numbers = reduce(recorded(workers=2), 0)
    assert "ipc" not in numbers.measures
    assert numbers.operations["frontend_bound"].isna().all()


def test_the_loader_of_most_samples_or_the_one_that_was_named():
    run = recorded()
    assert chosen(run, None) == 0
    assert chosen(run, {"number": 0}) == 0
    assert chosen(run, {"number": 3}) is None
    assert chosen(run, {"dataset": "ImageFolder"}) == 0
    assert chosen(run, {"dataset": "Other"}) is None


def test_a_loader_that_is_not_there_is_told_with_those_that_are():
    run = recorded()
    (name,) = named(run).values()
    site = run.loaders["call_site"].iloc[0]
    assert name == f"0 ImageFolder at {site}"
    assert missing(run, {"number": 7}) == f"there is no loader 7 in it; there are: {name}"
    assert missing(run, {"dataset": "Other"}).startswith("there is no loader Other in it; there")
    run.batches, run.waits = run.batches.iloc[:0], run.waits.iloc[:0]
    run.epochs = run.epochs.iloc[:0]
    assert missing(run, {"number": 7}) == "no DataLoader was iterated under lotus in it"


def test_a_setting_that_is_not_as_it_was_set():
    run = recorded(workers=2, prefetch=4)
    assert not_as_set(run, 0, Setting(2, 4), ("num_workers", "prefetch_factor")) == ""
    assert not_as_set(run, 0, Setting(2), ("num_workers",)) == ""
    difference = not_as_set(run, 0, Setting(3), ("num_workers",))
    assert difference == "num_workers was 2 instead of 3"
    difference = not_as_set(run, 0, Setting(2, 4, True), ("num_workers", "pin_memory"))
    assert difference == "pin_memory was False instead of True"
    # Without workers there is no prefetching that could be otherwise.
    alone = recorded(workers=0)
    assert not_as_set(alone, 0, Setting(0), ("num_workers", "prefetch_factor")) == ""


def test_memory_is_the_largest_sum_at_one_time():
    rows = [(0, 1, 100), (0, 2, 50), (1, 1, 100), (2, 1, 110), (2, 3, 70), (9, 1, 120)]
    frame = pd.DataFrame(
        [(0, pid, int(1e9) * second + 5, size, 0) for second, pid, size in rows],
        columns=["rank", "pid", "time_ns", "pss", "rss"],
    )
    # Process 2 was last seen in second 0, and is taken to be there for two seconds more.
    assert peak_memory(frame) == 110 + 70 + 50
    assert np.isnan(peak_memory(frame.iloc[:0]))
    assert peak_memory(frame.assign(rss=frame["pss"] * 2, pss=0)) == 2 * 230
