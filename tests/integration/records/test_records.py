"""What is recorded of a run is what the program itself knows of it."""

import json
import os
import subprocess
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.integration.conftest import WARM
from tests.integration.records.shapes import STARTED, forked


@dataclass
class Epoch:
    """What a program noted of one epoch (programs/watch.py), beside the rows of its run.

    record["batches"] are [before `next`, after `next`, indices, worker, pid], in order of taking.
    """

    record: dict[str, Any]
    row: pd.Series  # of run.epochs
    loader: pd.Series  # of run.loaders
    waits: pd.DataFrame  # in order of taking
    batches: pd.DataFrame  # by batch
    samples: pd.DataFrame
    workers: pd.DataFrame


def epochs_of(ended):
    """Every epoch that the program iterated through watch.epoch."""
    run, note = ended.run, json.loads(ended.truth.read_text())
    records = []
    for record in note["epochs"]:
        begin, end = record["iter"][0], record["over"]
        table = run.epochs[run.epochs["pid"] == note["pid"]]
        waits = run.waits[run.waits["tid"] == record["tid"]]
        waits = waits[waits["start_ns"].between(begin, end)]
        if len(waits):
            # A loader inside the data set is iterated within one of our own `next`.
            ours = waits[waits["start_ns"] <= record["batches"][0][1]].iloc[-1]
            table = table[(table["loader"] == ours["loader"]) & (table["epoch"] == ours["epoch"])]
            table = table[table["start_ns"].between(begin, end)]
        else:
            table = table[table["start_ns"].between(*record["iter"])]
        assert len(table) == 1, f"no epoch that began within {record['iter']}"
        row = table.iloc[0]

        def mine(rows, row=row):
            return rows[(rows["loader"] == row["loader"]) & (rows["epoch"] == row["epoch"])]

        records.append(
            Epoch(
                record,
                row,
                run.loaders[run.loaders["loader"] == row["loader"]].iloc[0],
                mine(run.waits).sort_values("start_ns"),
                mine(run.batches).set_index("batch", drop=False),
                mine(run.samples),
                run.workers[run.workers["loader"] == row["loader"]],
            )
        )
    return records


@pytest.fixture(scope="module")
def shapes(pair, torch):
    return pair("shapes.py", *forked(torch))[1]


@pytest.fixture(scope="module")
def epochs(pair, shapes):
    return epochs_of(shapes) + epochs_of(pair("shapes.py", *STARTED)[1])


def test_one_batch_row_for_every_batch(epochs):
    """Size, maker and place of every batch, and not one batch more."""
    assert len(epochs) > 40
    for epoch in epochs:
        taken = epoch.record["batches"]
        # THEN each batch that the program took has one row
        assert epoch.batches.index.is_unique
        assert len(epoch.waits) == len(taken)
        made = epoch.batches.reindex(epoch.waits["batch"])
        for (_, _, indices, worker, pid), (_, row) in zip(taken, made.iterrows(), strict=True):
            if np.isnan(row["fetch_ns"]) and epoch.loader["dataset"] == "Quiet":
                continue  # of two threads that fetch at once one is recorded: see test_threads
            assert (row["size"], row["worker"], row["pid"]) == (len(indices), worker, pid)
        # AND what is recorded beyond these was made for nobody: the loop was left before
        rest = epoch.batches.drop(index=epoch.waits["batch"])
        if epoch.record["end"]:
            assert (rest["flags"] != 0).all()  # an iterable that had no more to give
        assert rest["wait_ns"].isna().all()
        assert epoch.row["batches"] == len(taken)
        assert epoch.row["exhausted"] == (epoch.record["end"] is not None)


def test_samples_have_their_index(epochs):
    """The sampler's indices, in the order in which they were fetched."""
    for epoch in epochs:
        if epoch.loader["dataset_kind"] == "iterable" or epoch.loader["dataset"] == "ConcatDataset":
            continue  # no index, or not the one that this program saw
        for batch, (_, _, indices, worker, pid) in zip(
            epoch.waits["batch"], epoch.record["batches"], strict=True
        ):
            samples = epoch.samples[epoch.samples["batch"] == batch]
            assert (samples["pid"] == pid).all()
            assert (samples["worker"] == worker).all()
            if samples["many"].any():  # fetched in one call
                assert len(samples) == 1
            elif len(samples):
                assert samples["position"].tolist() == list(range(len(indices)))
                assert samples["sample"].tolist() == indices


def test_iterable_samples_are_counted(epochs):
    """A `next` that only found the end is no sample."""
    some = [epoch for epoch in epochs if epoch.loader["dataset_kind"] == "iterable"]
    assert len(some) >= 8
    for epoch in some:
        counts = epoch.samples.groupby("batch").size()
        taken = epoch.batches.loc[epoch.waits["batch"], "size"]
        assert counts.reindex(taken.index).tolist() == taken.tolist()


def test_waits_are_where_the_program_waited(epochs):
    """Each `next` lies within the program's own times around it, each step around them."""
    for epoch in epochs:
        taken, waits = epoch.record["batches"], epoch.waits
        before = np.array([row[0] for row in taken], np.int64)
        after = np.array([row[1] for row in taken], np.int64)
        start = waits["start_ns"].to_numpy()
        end = start + waits["wait_ns"].to_numpy()
        assert (before <= start).all()
        assert (end <= after).all()
        following = np.append(before[1:], epoch.record["end"][0] if epoch.record["end"] else [])
        step = waits["step_ns"].to_numpy()[: len(following)]
        assert (step >= following - after[: len(following)]).all()
        # AND where the loop was left there is no step, which is not a step of no time
        if not epoch.record["end"]:
            assert waits["step_ns"].tail(1).isna().all()


def test_waits_and_steps_are_the_loop(epochs):
    """Together they are the loop's wall time, to what the program's own clock calls took."""
    seen = walls = totals = 0
    for epoch in epochs:
        if not epoch.record["end"] or epoch.loader["class"] != "DataLoader":
            continue  # left before its end, or iterated by a generator of its own
        wall = epoch.record["end"][1] - epoch.record["batches"][0][0]
        last = epoch.row["end_ns"] - (
            epoch.waits[["start_ns", "wait_ns", "step_ns"]].sum(axis=1).max()
        )
        total = epoch.waits["wait_ns"].sum() + epoch.waits["step_ns"].sum() + last
        assert total <= wall
        walls, totals, seen = walls + wall, totals + total, seen + 1
    assert seen > 30
    # AND what lies between (writing the records, a busy machine) is little
    assert totals >= 0.9 * walls


def test_books_close(shapes):
    """A fetch is its samples, its collate and a rest that is not negative."""
    batches = shapes.run.batches
    batches = batches[batches["fetch_ns"].notna()]
    total = batches["samples_ns"].fillna(0) + batches["collate_ns"] + batches["self_ns"]
    known = batches["samples_ns"].notna()
    assert np.allclose(total[known], batches["fetch_ns"][known])
    assert (batches["self_ns"][known] >= 0).all()
    samples = shapes.run.samples
    assert (samples["self_ns"] >= 0).all()


def test_sends_and_readiness(epochs, shapes):
    """Pickled after it was put, ready before it is taken, by another thread than the worker's."""
    missing = taken = 0
    for epoch in epochs:
        made = epoch.batches.loc[epoch.waits["batch"]]
        if epoch.loader["num_workers"] == 0:
            done = made["fetch_start_ns"] + made["fetch_ns"]
            alone = made["fetch_ns"].notna()  # of two threads that fetch at once, one is recorded
            assert (made["ready_ns"] == done)[alone].all()
            assert made[["send_ns", "arrival_ns", "send_tid"]].isna().all(axis=None)
            continue
        sent = made[made["send_ns"].notna()]
        taken += len(made)
        missing += len(made) - len(sent)
        assert (sent["put_ns"] <= sent["send_start_ns"]).all()
        assert (sent["ready_ns"] == sent["send_start_ns"] + sent["pickle_ns"]).all()
        assert (sent["ready_ns"] <= sent["arrival_ns"]).all()
        assert (sent["send_start_ns"] + sent["send_ns"] >= sent["ready_ns"]).all()
        assert (sent["send_bytes"] > 0).all()
        assert (sent["delay_ns"] == sent["taken_ns"] - sent["ready_ns"]).all()
        assert not set(sent["send_tid"]) & set(sent["pid"])
        assert (made["arrival_ns"] <= made["taken_ns"]).all()
        assert (made["idle_ns"] >= 0).all()
    # Each that is missing is told: persistent workers are killed when the program ends, and a
    # feeder thread may get no core between the last batch of a worker and its end.
    lost = shapes.run.lost
    assert missing <= lost["count"].sum()
    assert missing < taken / 4
    assert set(lost["what"]) <= {"send times of a batch"}


def test_order_of_arrival(epochs):
    """Worker 1 is far ahead of worker 0: in order its batches wait, else they are taken early."""
    slow = [
        epoch
        for epoch in epochs
        if epoch.loader["dataset_length"] is not pd.NA and epoch.loader["dataset_length"] == 12
    ]
    for epoch in slow:
        order = epoch.batches["order"]
        assert epoch.batches["out_of_order"].equals(order == "early")
        assert order[epoch.batches["worker"] == 0].isin(["late", "in turn"]).all()
        assert (order[epoch.batches["worker"] == 1] == "early").sum() >= 2
        if epoch.loader["in_order"]:
            assert epoch.waits["batch"].tolist() == list(range(6))
        else:
            assert epoch.waits["batch"].tolist() != list(range(6))
    assert {bool(epoch.loader["in_order"]) for epoch in slow} >= {True}


def test_workers(epochs):
    """One row a worker process: when it was there, when it was ready, what it made."""
    for epoch in epochs:
        workers = epoch.workers
        if epoch.loader["num_workers"] == 0:
            assert workers.empty
            continue
        pids = {row[4] for row in epoch.record["batches"]}
        assert pids <= set(workers["pid"])
        mine = workers[workers["pid"].isin(set(epoch.batches["pid"]))]
        assert mine["worker"].is_unique
        # Only a worker that spawn starts imports the program, and then reads its arguments.
        spawned = epoch.loader["start_method"] in ("spawn", "forkserver")
        assert (workers["import_ns"].notna() == spawned).all()
        assert (workers["unpickle_ns"].notna() == spawned).all()
        assert (mine["start_ns"] <= mine["loop_ns"]).all()
        assert (mine["loop_ns"] <= mine["ready_ns"]).all()
        assert (mine["startup_ns"] > 0).all()
        ended = mine["end_ns"].dropna()
        assert (ended >= mine["ready_ns"][ended.index]).all()


def test_persistent_workers_keep_their_processes(epochs):
    """All epochs of a loader are made by the same two, each batch in its own epoch."""
    loaders = {}
    for epoch in epochs:
        if epoch.loader["persistent_workers"]:
            loaders.setdefault(epoch.loader["loader"], []).append(epoch)
    assert sorted(len(some) for some in loaders.values()) == [2, 2, 4]
    for some in loaders.values():
        assert [epoch.row["epoch"] for epoch in some] == list(range(len(some)))
        assert len(some[0].workers) == 2
        # An iterable's last fetch may find that there is nothing more: no batch.
        made = sum(int((epoch.batches["flags"] == 0).sum()) for epoch in some)
        assert some[0].workers["batches"].sum() == made
        # THEN no batch was made before its epoch began
        for epoch in some:
            assert (epoch.batches["fetch_start_ns"] >= epoch.row["start_ns"]).all()


def test_loaders_are_described(epochs):
    row = {
        (
            epoch.loader["start_method"],
            epoch.loader["dataset_kind"],
            bool(epoch.loader["persistent_workers"]),
        )
        for epoch in epochs
    }
    assert {
        (None, "map", False),
        (None, "iterable", False),
        ("fork", "map", False),
        ("fork", "map", True),
        ("fork", "iterable", True),
        ("spawn", "map", False),
        ("forkserver", "map", False),
    } <= row
    for epoch in epochs:
        loader = epoch.loader
        assert loader["call_site"].startswith(("watch.py:", "shapes.py:"))
        assert loader["num_workers"] in (0, 2)
        if loader["num_workers"]:
            assert loader["prefetch_factor"] == 2
    assert {epoch.loader["collate_fn"] for epoch in epochs} >= {"as_list", "<lambda>"}
    assert {epoch.loader["class"] for epoch in epochs} == {"DataLoader", "Augmented"}
    assert {epoch.loader["batch_sampler"] for epoch in epochs} >= {None, "BatchSampler", "Uneven"}
    assert {epoch.loader["sampler"] for epoch in epochs} >= {"WeightedRandomSampler"}


def test_loaders_inside_a_data_set(shapes):
    """In a worker they are recorded under the worker's pid and numbered after all others."""
    run = shapes.run
    nested = run.loaders[run.loaders["dataset_length"] == 3]
    main = run.loaders[run.loaders["pid"] == json.loads(shapes.truth.read_text())["pid"]]
    inside = nested[~nested["pid"].isin(main["pid"])]
    assert len(nested) == 8
    assert len(inside) == 4
    assert inside["loader"].min() == main["loader"].max() + 1
    assert run.loaders["loader"].tolist() == list(range(len(run.loaders)))
    batches = run.batches[run.batches["loader"].isin(nested["loader"])]
    assert batches["size"].tolist() == [2.0, 1.0] * 8
    assert batches["wait_ns"].notna().all()
    outer = run.loaders[run.loaders["dataset"] == "Outer"]["loader"]
    assert set(inside["pid"]) == set(run.workers[run.workers["loader"] == outer.max()]["pid"])
    # AND the outer sample holds the whole inner loop
    samples = run.samples[run.samples["loader"].isin(outer)]
    # (Of workers the first to be there stands first.)
    ordered = samples.sort_values(["loader", "worker"], kind="stable")
    assert ordered["sample"].tolist() == [0, 1, 2, 3] * 2
    assert samples["duration_ns"].min() > batches.groupby("loader")["fetch_ns"].sum().min()


def test_two_loops_in_one_another(shapes):
    """Training and validation, and two iterators of one loader, are kept apart."""
    run = shapes.run
    in_main = run.loaders[run.loaders["iterated_at"].str.startswith("shapes.py")]
    table = run.epochs.set_index("loader")
    counts = {
        (loader["num_workers"], bool(loader["persistent_workers"]), loader["batch_size"]): [
            (row["batches"], row["exhausted"]) for _, row in table.loc[[number]].iterrows()
        ]
        for number, loader in in_main.set_index("loader").iterrows()
        if loader["class"] == "DataLoader"
        and loader["dataset"] == "Numbers"
        and loader["dataset_length"] != 3
    }
    # zip() asks the first iterator once more, then leaves the second one
    assert counts.pop((0, False, 2)) == [(5, True), (5, False)]
    assert counts.pop((2, True, 3)) == [(2, True)] * 2  # val
    assert list(counts.values()) in ([[(4, True), (4, False)]], [[(4, True), (4, True)]])


def test_threads(shapes):
    """What a thread iterates is recorded with that thread's id."""
    run = shapes.run
    quiet = run.loaders[run.loaders["dataset"] == "Quiet"]
    waits = run.waits[run.waits["loader"].isin(quiet["loader"])]
    assert waits.groupby("loader")["tid"].nunique().tolist() == [1, 1, 1]
    assert waits["tid"].nunique() == 3
    beside = run.batches[run.batches["loader"].isin(quiet["loader"])]
    assert beside["fetch_ns"].notna().all()


def test_cores_to_which_the_data_set_binds_its_worker_are_seen(tmp_path, torch, trace_command):
    """GIVEN a data set that keeps its process to one core when it first makes a sample."""
    program = tmp_path / "bound.py"
    program.write_text(
        "import os, torch\n"
        "from torch.utils.data import DataLoader, Dataset\n"
        "class Bound(Dataset):\n"
        "    def __len__(self):\n"
        "        return 12\n"
        "    def __getitem__(self, index):\n"
        "        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "        return index\n"
        "for _ in DataLoader(Bound(), batch_size=2, num_workers=1):\n"
        "    pass\n"
    )
    workers = trace_command(WARM, program).run.workers
    assert workers["cpus"].tolist() == [str(min(os.sched_getaffinity(0)))]


def test_a_sampler_that_draws_to_count_its_batches_draws_the_same(tmp_path, torch, trace_command):
    script = tmp_path / "draws.py"
    script.write_text(
        "import torch\n"
        "from torch.utils.data import DataLoader, RandomSampler, Sampler\n"
        "class Uneven(Sampler):\n"
        "    def __iter__(self):\n"
        "        left = list(RandomSampler(range(20)))\n"
        "        while left:\n"
        "            size = int(torch.randint(1, 5, ()))\n"
        "            yield left[:size]\n"
        "            del left[:size]\n"
        "    def __len__(self):\n"
        "        return sum(1 for _ in self)\n"
        "torch.manual_seed(0)\n"
        "for loader in (DataLoader(range(20), batch_sampler=Uneven()), DataLoader(range(5))):\n"
        "    print([batch.tolist() for batch in loader])\n"
    )
    alone = subprocess.run([WARM, script], capture_output=True, check=True)
    got = trace_command(WARM, script)
    assert (got.code, got.out) == (0, alone.stdout)
    lengths = got.run.loaders["length"]
    assert lengths.isna().tolist() == [True, False]
    assert lengths[1] == 5


def test_a_kill_after_the_loop_is_no_wait(torch, trace_command):
    code = (
        "import os, signal\n"
        "from torch.utils.data import DataLoader\n"
        "class Bad:\n"
        "    def __len__(self): return 2\n"
        "    def __getitem__(self, index): raise ValueError\n"
        "for data in ([1, 2], Bad()):\n"
        "    if os.fork() == 0:\n"
        "        try:\n"
        "            for _ in DataLoader(data): pass\n"
        "        except ValueError: pass\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    os.wait()\n"
    )
    got = trace_command(WARM, "-c", code)
    assert (got.code, len(got.run.epochs)) == (0, 2)
    assert not len(got.run.open_waits)
