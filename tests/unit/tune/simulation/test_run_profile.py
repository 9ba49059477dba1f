"""Profiles of runs whose costs are known, and their replay against the runs themselves."""

import dataclasses
import math
import re

import numpy as np
import pandas as pd
import pytest

import lotus
from lotus.common.errors import LotusError
from lotus.settings.space import Setting
from lotus.tune.simulation.batch_parts import COLLATE, OWN
from lotus.tune.simulation.loader_simulation import simulate
from lotus.tune.simulation.run_profile import contention, profile
from tests.simulation import simulate as simulated_run
from tests.unit.analysis.common.test_remade_loaders import remade
from tests.unit.simulated import Plan

MS = 1e6


def made(plan, **options):
    return profile(plan.run(), **{"step_cores": 0.0, **options})


def part(profiled, table, name):
    return table[:, profiled.parts.index(name)]


# Handing batches over takes next to nothing, as how that overlaps differs between the simulations.
EDGES = {"iter": 0.01, "shutdown": 0.01}  # that simulation has the same for any workers
QUICK = {"pickle": 0.001, "write": 0.001, "unpickle": 0.001}


def words(plan):
    """What is not as usual; a function without where it lies in memory, which is never the same."""
    names = [name for name in vars(plan) if getattr(plan, name) != getattr(Plan(), name)]
    values = ((name, getattr(plan, name)) for name in names if name not in {**QUICK, **EDGES})
    return (
        re.sub(r" at 0x\w+", "", ", ".join(f"{name}={value}" for name, value in values)) or "usual"
    )


@pytest.mark.parametrize(
    "plan",
    [
        Plan(**QUICK),
        Plan(**QUICK, workers=1),
        Plan(**QUICK, workers=0),
        Plan(**QUICK, workers=4, step=5.0),
        Plan(**QUICK, workers=4, prefetch=1, step=2.0, batches=100),
        Plan(**QUICK, epochs=3, persistent=True),
        Plan(**QUICK, epochs=3),
        Plan(**QUICK, workers=2, first_sample=30.0),
        Plan(
            **QUICK,
            workers=3,
            operations={"Loader": lambda sample, _: 2.0 + 20 * (sample % 37 == 0)},
        ),
    ],
    ids=words,
)
def test_a_replay_is_like_the_run(plan):
    profiled = made(plan)
    replay, measured = profiled.replay(), profiled.measured
    assert replay.samples_per_s == pytest.approx(measured.samples_per_s, rel=0.02)
    assert replay.steady_samples_per_s == pytest.approx(measured.steady_samples_per_s, rel=0.02)
    assert replay.wait_share == pytest.approx(measured.wait_share, abs=0.01)
    assert replay.first_batch_s == pytest.approx(measured.first_batch_s, rel=0.1)


@pytest.mark.parametrize(
    ("recorded", "target"),
    [
        (Plan(**QUICK, **EDGES, workers=1), Plan(**QUICK, **EDGES, workers=4)),
        (Plan(**QUICK, workers=2, step=4.0), Plan(**QUICK, workers=2, prefetch=8, step=4.0)),
        (Plan(**QUICK, workers=4, step=0.5), Plan(**QUICK, workers=1, step=0.5)),
        (Plan(**QUICK, workers=2), Plan(**QUICK, workers=0)),
        (
            Plan(**QUICK, workers=2, operations={"Loader": 8.0, "Normalize": 1.0}),
            Plan(**QUICK, workers=3, operations={"Loader": 2.0, "Normalize": 1.0}),
        ),
    ],
    ids=words,
)
def test_another_setting_is_predicted(recorded, target):
    profiled, truth = made(recorded), made(target).measured
    faster = {
        name: cost / target.operations[name]
        for name, cost in recorded.operations.items()
        if cost != target.operations[name]
    }
    setting = Setting(target.workers, target.prefetch if target.workers else None)
    then = simulate(profiled.work(faster), setting, profiled.machine(), batches=target.batches)
    assert then.samples_per_s == pytest.approx(truth.samples_per_s, rel=0.03)
    assert then.steady_samples_per_s == pytest.approx(truth.steady_samples_per_s, rel=0.02)


def test_a_recorded_directory(tmp_path):
    path = simulated_run(tmp_path / "run", workers=3, batches=30, prefetch=4)
    profiled = profile(lotus.load(path), step_cores=0.0)
    assert profiled.setting == Setting(3, 4, start_method="fork", in_order=True)
    assert profiled.parts == ("Loader", "RandomResizedCrop", "ToTensor", OWN, COLLATE)
    assert profiled.batches == 30
    # In that simulation pickling overlaps with making the next batch.
    assert profiled.replay().samples_per_s == pytest.approx(
        profiled.measured.samples_per_s, rel=0.06
    )


def test_parts():
    profiled = made(Plan(batch_size=4, operations={"Loader": 2.0, "Normalize": 0.5}, collate=0.7))
    assert part(profiled, profiled.cpu, "Loader") == pytest.approx(8 * MS)
    assert part(profiled, profiled.cpu, "Normalize") == pytest.approx(2 * MS)
    assert part(profiled, profiled.cpu, OWN) == pytest.approx(0.2 * MS)
    assert part(profiled, profiled.cpu, COLLATE) == pytest.approx(0.7 * MS)
    assert not profiled.wait.any()
    assert any("--level op+cpu" in note for note in profiled.notes)


def test_a_heavy_tail_is_kept():
    slow = Plan(operations={"Loader": lambda sample, _: 2.0 + 50 * (sample == 61)})
    costs = part(made(slow), made(slow).cpu, "Loader")
    assert costs[15] == pytest.approx(58 * MS)
    assert np.delete(costs, 15) == pytest.approx(8 * MS)


def with_cpu(run, of_operation, voluntary, involuntary):
    """The same run recorded at level op+cpu: shares of operations on a core, switches per fetch."""
    run.manifest["level"] = "op+cpu"
    share = run.ops["operation"].astype(str).map(of_operation).to_numpy(float)
    run.ops["cpu_ns"] = run.ops["duration_ns"] * share
    off = run.ops["duration_ns"] - run.ops["cpu_ns"]
    lost = off.groupby([run.ops["epoch"], run.ops["batch"]]).sum()
    places = pd.MultiIndex.from_frame(run.batches[["epoch", "batch"]])
    run.batches["cpu_ns"] = run.batches["fetch_ns"] - lost.reindex(places).to_numpy()
    run.batches["voluntary_switches"] = float(voluntary)
    run.batches["involuntary_switches"] = float(involuntary)
    return run


def test_an_operation_that_waits_is_told_from_one_that_computes():
    run = with_cpu(Plan(cores=8).run(), {"Loader": 0.25, "Normalize": 1.0}, 4, 0)
    profiled = profile(run, step_cores=0.0)
    assert part(profiled, profiled.wait, "Loader") == pytest.approx(6 * MS)
    assert part(profiled, profiled.cpu, "Loader") == pytest.approx(2 * MS)
    assert not part(profiled, profiled.wait, "Normalize").any()
    assert profiled.others == 0


def test_what_was_pushed_off_its_core_did_not_wait():
    run = with_cpu(Plan(cores=2).run(), {"Loader": 0.5, "Normalize": 0.5}, 0, 20)
    profiled = profile(run, step_cores=0.0)
    assert not profiled.wait.any()
    assert profiled.crowding == pytest.approx(10.7 / 5.7)
    assert profiled.others == pytest.approx(10.7 / 5.7 - 1, rel=0.1)
    assert any("other programs" in note for note in profiled.notes)
    assert profiled.replay().samples_per_s == pytest.approx(
        profiled.measured.samples_per_s, rel=0.05
    )


def test_the_loaders_own_processes_are_not_taken_for_others():
    run = with_cpu(Plan(workers=4, cores=2).run(), {"Loader": 0.5, "Normalize": 0.5}, 0, 20)
    profiled = profile(run, step_cores=0.0)
    assert profiled.others < 0.1


@pytest.mark.parametrize("step", [8.0, 0.5], ids=["the batch is there", "the loop waits"])
def test_taking_a_batch_is_not_waiting_for_a_core(step):
    run = Plan(step=step).run()
    assert profile(run).fixed["get_ns"] == pytest.approx(0.1 * MS, abs=0.11 * MS)
    # Of three batches two were taken late, as others had the core of the main process.
    late = run.batches["batch"] % 3 > 0
    run.batches.loc[late, "arrival_ns"] += 30 * int(MS)
    assert profile(run).fixed["get_ns"] == pytest.approx(0.1 * MS, abs=0.11 * MS)


def test_steps_are_freed_of_what_the_workers_took_from_them():
    run = with_cpu(
        Plan(workers=2, cores=1, step=9.0).run(), {"Loader": 0.5, "Normalize": 0.5}, 0, 20
    )
    profiled = profile(run, step_cores=1.0)
    assert profiled.step_ns.mean() < 8 * MS
    again = profiled.replay()
    step = (1 - again.wait_share) * again.seconds * 1e9 / len(again.timeline.order)
    assert step == pytest.approx(9 * MS, rel=0.05)


def test_quicker_parts():
    profiled = made(Plan(batch_size=4, operations={"Loader": 2.0, "Normalize": 0.5}, step=3.0))
    base = profiled.work()
    quick = profiled.work({"Loader": 2, COLLATE: 5, "step": 3})
    assert base.cpu_ns - quick.cpu_ns == pytest.approx(4 * MS + 0.4 * MS)
    assert quick.step_ns == pytest.approx(1 * MS)


def test_an_operation_inside_another_can_be_quicker():
    run = Plan(operations={"Pipeline": 2.0}).run()
    inner = run.ops.assign(nested=True, duration_ns=run.ops["duration_ns"] // 2)
    inner["operation"] = pd.Series(["Crop"] * len(inner), dtype="category")
    run.ops = pd.concat([run.ops, inner], ignore_index=True)
    profiled = profile(run)
    assert "Crop" not in profiled.parts
    assert "Crop" in profiled.names()
    assert profiled.work().cpu_ns - profiled.work({"Crop": 2}).cpu_ns == pytest.approx(2 * MS)


@pytest.mark.parametrize(
    ("speedups", "words"), [({"Blur": 2}, "Loader, Normalize"), ({"Loader": 0}, "above 0")]
)
def test_a_quicker_part_must_be_there(speedups, words):
    with pytest.raises(LotusError, match=words):
        made(Plan()).work(speedups)


def test_contention_of_two_runs():
    first = dataclasses.replace(made(Plan()), busy=1.0)
    second = dataclasses.replace(first, busy=2.0, cpu=first.cpu * 1.25)
    slowdown = contention(first, second)
    assert slowdown == contention(second, first) == pytest.approx(0.25)
    # Taken out of either they cost the same.
    assert second.work(contention=slowdown).cpu_ns == pytest.approx(first.work().cpu_ns)
    with pytest.raises(LotusError, match="about as many"):
        contention(first, first)


def test_what_cannot_be_replayed():
    empty = Plan().run()
    for name in ("ops", "samples", "batches", "waits", "epochs"):
        setattr(empty, name, getattr(empty, name).iloc[:0])
    with pytest.raises(LotusError, match="no DataLoader was iterated"):
        profile(empty)
    failed = Plan().run()
    failed.batches["fetch_ns"] = np.nan
    with pytest.raises(LotusError, match="too few batches"):
        profile(failed)
    backwards = Plan().run()
    backwards.waits["step_ns"] = -1.0
    with pytest.raises(LotusError, match="cannot be replayed"):
        profile(backwards).work()
    with pytest.raises(LotusError, match="no loader 7"):
        profile(Plan().run(), 7)


def test_what_a_run_does_not_tell_is_said():
    partly = Plan().run()
    partly.manifest["every"] = 2
    profiled = profile(partly)
    assert np.isnan(profiled.measured.samples_per_s)
    assert any("not every batch" in note for note in profiled.notes)
    alone = profile(Plan(workers=0).run())
    assert any("assumed" in note for note in alone.notes)
    unknown = Plan().run()
    unknown.manifest["cpu"] = {}
    assert any("how many cores" in note for note in profile(unknown).notes)
    blind = Plan().run()
    blind.batches["cpu_ns"] = np.nan
    assert any("no CPU times" in note for note in profile(blind).notes)


MB = 2**20


def shared(plan, *, size=8 * MB, faults=2048.0):
    """(shared_ns, free_ns, notes) in ms of batches of `size` bytes with so many page faults."""
    run = plan.run()
    run.batches["bytes"] = float(size)
    run.batches["minor_faults"] = faults
    profiled = profile(run)
    notes = [note for note in profiled.notes if "shared memory" in note]
    return profiled.fixed["shared_ns"] / MS, profiled.fixed["free_ns"] / MS, notes


def test_new_shared_memory_is_told_apart_from_collating():
    # 8 MiB take 0.84 ms to copy.
    plan = Plan(workers=2, collate=4.0)
    made, freed, notes = shared(plan)
    assert made == pytest.approx(4 - 0.839, abs=0.01)
    assert freed == pytest.approx(made / 3)
    assert not notes
    # As many pages again for the samples, at 0.6 of the price.
    assert shared(plan, faults=4096.0)[0] == pytest.approx(1.6 * made, rel=1e-3)
    # The pages were not made, or are too few for it to be their doing; malloc would not keep it.
    assert shared(plan, faults=0.0)[0] == 0
    assert shared(plan, faults=100.0)[0] == pytest.approx(1.0 * (1 + 0), abs=0.01)
    assert shared(plan, size=64 * MB)[0] == 0
    assert shared(plan, faults=np.nan)[0] == 0


def test_new_shared_memory_is_assumed_where_there_was_none():
    plan = Plan(workers=0, collate=1.0)
    made, freed, notes = shared(plan)
    assert made == pytest.approx(2048 * 2e-3)
    assert freed == pytest.approx(made / 3)
    assert "assumed" in notes[0]
    assert not shared(plan, size=1000)[2]


def memory_of(rows, **settings):
    """(main_bytes, worker_bytes, notes) of readings (second, pid, worker, pss, rss), MB."""
    plan = Plan(workers=3, prefetch=2, batches=30)
    run = plan.run()
    run.batches["bytes"] = 10.0 * MB
    run.loaders = run.loaders.assign(**settings)
    columns = ["time_ns", "pid", "worker", "pss", "rss"]
    made = pd.DataFrame(rows, columns=columns).assign(rank=0)
    made["pss"], made["rss"] = made["pss"] * MB, made["rss"] * MB
    run.resources = made
    profiled = profile(run)
    notes = [
        note for note in profiled.notes if note.startswith(("the memory ", "the total memory "))
    ]
    return profiled.fixed["main_bytes"] / MB, profiled.fixed["worker_bytes"] / MB, notes


def test_memory_of_forked_workers_is_what_they_do_not_share():
    # Read when they start they have nothing of their own yet.
    rows = [(number, 100 + number, number, 340 / (number + 2), 340) for number in range(3)]
    main, worker, notes = memory_of(rows)
    assert (main, worker) == (340, 0)
    assert "only at their start" in notes[0]
    # Later they have grown by 60, of which two batches.
    later = [(9, 100 + number, number, 0, 400) for number in range(3)]
    assert memory_of(rows + later) == (340, 40, [])
    # And have written to 50 of the 340: 110 is their own, 290 four share.
    later = [(9, 100 + number, number, 110 + 290 / 4, 400) for number in range(3)]
    assert memory_of(rows + later) == (340, pytest.approx(90), [])
    # The main process's own reading is better.
    assert memory_of([(0, 1, -1, 500, 600), *rows, *later])[0] == 500


def test_memory_that_is_not_known():
    main, _, notes = memory_of([])
    assert math.isnan(main)
    assert "there were none" in notes[0]
    rows = [(0, 100, 0, 80, 300), (1, 101, 1, 90, 300), (2, 100, 0, 0, 310)]
    main, worker, notes = memory_of(rows, start_method="spawn")
    assert math.isnan(main)
    assert worker == pytest.approx(305)
    assert "spawn" in notes[0]


def test_all_epochs_of_a_loader_that_is_made_anew_are_replayed():
    run = remade()
    run.loaders["persistent_workers"] = True
    of_first, of_last = (profile(run, loader, step_cores=0.0) for loader in (None, 2))
    assert of_first.epochs == of_last.epochs == 3
    assert len(of_first.size) == len(of_last.size) == 3 * 8
    assert not of_first.setting.persistent_workers  # they end with each loader
    assert any("creates this loader 3 times" in note for note in of_first.notes)
    made_once = dataclasses.replace(of_first.setting, persistent_workers=True)
    machine, work = of_first.machine(), of_first.work()
    outcome = simulate(work, made_once, machine, batches=8, epochs=3)
    assert outcome.seconds < of_first.replay().seconds
