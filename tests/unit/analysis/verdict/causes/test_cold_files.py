"""Storage that is waited for, told from cores that other programs, or the workers, have."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.machine.core_use import core_use
from lotus.analysis.verdict.advice.circumstances import Circumstances, circumstances_of
from lotus.analysis.verdict.causes.cause_row import Charge
from lotus.analysis.verdict.causes.making import storage, work
from lotus.analysis.verdict.causes.making.work import OPERATION
from lotus.analysis.verdict.verdict import Verdict
from lotus.common.text.formatting import size
from lotus.reporters.run.terminal import report
from tests.unit.analysis.observations.test_looks import slow, with_looks
from tests.unit.analysis.verdict.causes.test_causes import judged
from tests.unit.simulated import Plan


def test_reading_explains_no_more_time_than_storage_can_take() -> None:
    plan = Plan(operations={"Fetch": 20.0}, cpu=0.1, read_bytes=512)
    assert judged(plan.run()).causes[0].kind == "operation"


def on_shared_cores(batches: int = 20, epochs: int = 1, **changes: int) -> SimpleNamespace:
    """27% on a CPU, the rest mostly taken off its core, and 704 KiB read, almost all at first.

    As measured on two busy cores with every file in the page cache.
    """
    plan = Plan(batches=batches, epochs=epochs, operations={"Loader": 20.0}, cpu=0.27)
    run = plan.run()
    table = run.batches
    table["voluntary_switches"], table["involuntary_switches"] = 4, 20
    table["major_faults"] = 0
    table.loc[::2, "major_faults"] = 1
    table.loc[::2, "read_bytes"] = 4096
    table.loc[0, ["read_bytes", "major_faults"]] = [704 * 1024 - 9 * 4096, 40]
    for name, value in changes.items():
        table[name] = value
    return run


def circumstances_in(run: SimpleNamespace) -> Circumstances:
    scope = scopes(run)[0]
    return circumstances_of(scope, core_use(scope))


def cold_share(run: SimpleNamespace) -> float:
    return sum(cause.share for cause in judged(run).causes if cause.kind == "cold-files")


def test_files_are_not_blamed_for_cores_that_others_had() -> None:
    run = on_shared_cores()
    assert run.batches["read_bytes"].sum() == 704 * 1024
    judgement = judged(run)
    assert cold_share(run) == 0
    assert (judgement.causes[0].kind, judgement.causes[0].title) == (
        "operation",
        "decode (default_loader)",
    )


def test_files_are_not_blamed_for_a_fetch_without_waiting_of_its_own() -> None:
    everywhere = {"read_bytes": 1 << 20, "major_faults": 0}
    assert cold_share(on_shared_cores(**everywhere, voluntary_switches=0)) == 0
    assert cold_share(on_shared_cores(**everywhere, involuntary_switches=400)) == 0


def test_cold_files_are_named_on_shared_cores_as_well() -> None:
    run = on_shared_cores(read_bytes=1 << 20, voluntary_switches=40)
    assert judged(run).causes[0].kind == "cold-files"


def test_what_only_first_batches_read_is_no_file_of_the_data_set() -> None:
    # Not one switch was forced, so only the reading itself can tell.
    few = {"batches": 4, "epochs": 5}  # half of them are the first ones of their processes
    run = on_shared_cores(**few, involuntary_switches=0, read_bytes=0, major_faults=0)
    run.batches.loc[run.batches["batch"] < 2, "read_bytes"] = 1 << 26
    assert cold_share(run) == 0
    run.batches["read_bytes"] = 1 << 20
    assert cold_share(run) > 0.5


def test_batches_that_read_nothing_tell_what_else_is_waited_for() -> None:
    run = on_shared_cores(involuntary_switches=0, read_bytes=0, major_faults=0)
    run.batches.loc[::2, "read_bytes"] = 1 << 20
    assert cold_share(run) == 0
    # Where batches without reading do not wait, the reading is what the others wait for.
    run.batches["cpu_ns"] = run.batches["cpu_ns"].where(run.batches["read_bytes"] > 0, 80_000_000)
    assert cold_share(run) > 0.5


def test_what_operations_read_is_held_to_their_batch() -> None:
    run = on_shared_cores(involuntary_switches=0, read_bytes=0, major_faults=0)
    run.ops["cpu_ns"] = run.ops["duration_ns"] * 0.27
    run.ops["read_bytes"], run.ops["major_faults"] = 1 << 20, 0
    run.batches["read_bytes"] = 4 << 20
    assert judged(run).causes[0].kind == "cold-files"
    run.batches["involuntary_switches"] = 400
    assert cold_share(run) == 0


def test_only_what_a_batch_read_itself_counts() -> None:
    run = on_shared_cores(involuntary_switches=0, read_bytes=0, major_faults=0)
    run.batches.loc[run.batches["batch"] % 5 == 4, "read_bytes"] = 1 << 26
    assert cold_share(run) == 0


def test_shared_cores_are_told_and_call_for_no_more_workers() -> None:
    run = on_shared_cores()
    assert circumstances_in(run).shared == pytest.approx(20 / 24)
    assert "less certain" in report(run)
    # 27% on a CPU and a sixth of the rest waiting: 40% of the fetch is the worker's own.
    own = 0.27 + 0.73 * 4 / 24
    assert circumstances_in(run).needed == pytest.approx(80.7 * own, rel=0.01)
    assert judged(run).causes[0].evidence["waiting_share"] < 0.5

    alone = on_shared_cores(involuntary_switches=0)
    assert circumstances_in(alone).shared == 0
    assert "less certain" not in report(alone)
    assert judged(alone).causes[0].evidence["waiting_share"] > 0.5


def test_what_others_took_is_not_called_waiting_of_an_operation() -> None:
    """GIVEN an operation that was off the CPU, of a program whose cores others had
    THEN it is not said to wait, and no workers are advised against it."""
    charge = Charge(OPERATION.kind, "Decode", 100.0, {"waiting_share": 0.9})
    shared = circumstances_in(on_shared_cores())
    assert OPERATION.full_title(charge, shared) == "Decode"
    assert "other programs used the cores" in OPERATION.advice(charge, shared).text
    assert "num_workers" not in OPERATION.advice(charge, shared).text
    alone = circumstances_in(on_shared_cores(involuntary_switches=0))
    assert OPERATION.full_title(charge, alone) == "Decode (waits, not computing)"


def test_workers_that_crowd_one_another_share_with_nobody() -> None:
    run = Plan(workers=8, operations={"Loader": 20.0}, cpu=0.25, cores=2).run()
    run.batches["voluntary_switches"], run.batches["involuntary_switches"] = 1, 50
    assert circumstances_in(run).shared == 0


def test_the_rate_at_which_files_came_is_told_as_more_workers_may_not_raise_it() -> None:
    run = Plan(workers=1, operations={"Fetch": 20.0}, cpu=0.1, read_bytes=10_000_000).run()
    first = judged(run).causes[0]
    assert first.kind == "cold-files"
    seconds = float((run.epochs["end_ns"] - run.epochs["start_ns"]).sum()) / 1e9
    rate = first.evidence["read_bytes_per_s"]
    assert rate == pytest.approx(run.batches["read_bytes"].sum() / seconds, rel=0.1)
    told = f"{size(rate)} a second"
    assert told in first.reason
    assert f"unless {told} is all that it gives" in first.advice
    run.manifest["every"] = 2
    assert "unless" not in judged(run).causes[0].advice  # what the other batches read is not known


@pytest.mark.parametrize("reason", ["cold files", "blocked"])
@pytest.mark.parametrize(
    ("exponent", "words", "has_setting"),
    [
        (0.0, "More workers read more files at once", True),
        (0.5, "`lotus tune` measures", False),
        (math.nan, "`lotus tune` measures", False),
        (1.0, "more workers do not help", False),
    ],
)
def test_more_workers_read_only_where_samples_do_not_slow_each_other(
    monkeypatch: pytest.MonkeyPatch, reason: str, exponent: float, words: str, has_setting: bool
) -> None:
    for module in (storage, work):
        monkeypatch.setattr(module, "mutual_slowing", lambda scope: exponent)
    if reason == "blocked":
        run = with_looks(slow(workers=4), storage=90, computing=10)
    else:
        run = Plan(workers=4, operations={"Fetch": 20.0}, cpu=0.1, read_bytes=10_000_000).run()
    first = judged(run).causes[0]
    assert (first.kind == "cold-files") == (reason == "cold files")
    assert "keep the files on a faster or local disk" in first.advice
    assert words in first.advice
    assert bool(first.remedy.setting) == has_setting


def test_pages_that_come_back_from_swap_are_no_files() -> None:
    run = Plan(operations={"Fetch": 20.0}, cpu=0.1, read_bytes=10_000_000).run()
    run.manifest["memory_bytes"] = 64e9
    times = [run.epochs["start_ns"].min(), run.epochs["end_ns"].max()]
    read = float(run.batches["read_bytes"].sum())

    def with_swap(swapped: float, left: float) -> Verdict:
        counters = {"swapped_bytes": [0.0, swapped], "available_bytes": left}
        run.machine = pd.DataFrame({"time_ns": times} | counters)
        return judged(run)

    full = with_swap(read, left=1e9)
    first = full.causes[0]
    assert first.kind == "swap"
    assert f"{size(read)} were swapped in and out" in first.reason
    assert "keep less data in memory" in first.advice
    (flaw,) = full.flaws  # what to do stands once
    assert flaw == f"Memory was full: {size(read)} were swapped in and out."
    assert with_swap(0.3 * read, left=1e9).causes[0].kind == "cold-files"
    assert with_swap(read, left=32e9).causes[0].kind == "cold-files"
