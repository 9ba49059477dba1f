"""How much each worker's memory grew, by readings that can be compared."""

import io
import math
from types import SimpleNamespace

import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.machine.memory_readings import NOT_ALIKE, memory_of_workers, memory_readings
from lotus.analysis.summary import summarise
from lotus.reporters.base.console import plain_console
from lotus.reporters.run import terminal
from tests.unit.simulated import BASE, MS, Plan

MIB = 1 << 20
LATE = BASE + 500 * MS  # all workers are ready


def run_of(workers: int = 2, **plan: int) -> SimpleNamespace:
    run = Plan(workers=workers, **plan).run()
    # Each reads itself as it starts; the first one before the others are forked.
    pss = [300, *[120] * (workers - 1)]
    run.resources = pd.DataFrame(
        {"rank": 0, "pid": run.workers["pid"], "worker": run.workers["worker"],
         "time_ns": run.workers["start_ns"], "rss": 600 * MIB, "pss": [MIB * each for each in pss]}
    )  # fmt: skip
    return run


def with_launcher(run: SimpleNamespace, rows: list[tuple[int, int, float, float, float]]) -> None:
    """Add readings of (worker, s, pss, private, anonymous in MiB)."""
    table = pd.DataFrame(rows, columns=["worker", "time_ns", "pss", "private", "anonymous"])
    pids = dict(zip(run.workers["worker"], run.workers["pid"], strict=True)) | {-1: 1}
    table["time_ns"] = LATE + table["time_ns"] * 1000 * MS
    table[["pss", "private", "anonymous"]] *= MIB
    run.memory = table.assign(pid=table["worker"].map(pids), rss=600 * MIB, shared=300 * MIB)


def of(run: SimpleNamespace) -> pd.DataFrame:
    return memory_of_workers(scopes(run)[0]).set_index("worker")


def test_readings_of_the_launcher_tell_growth_whatever_else_shares_the_pages() -> None:
    run = run_of()
    # The PSS falls as more processes share the pages, and rises as they end.
    with_launcher(run, [(0, 0, 140, 20, 300), (0, 4, 90, 25, 301), (1, 1, 90, 20, 300),
                        (1, 3, 190, 150, 300)])  # fmt: skip
    table = of(run)
    assert table["growth_bytes"].tolist() == [5 * MIB, 130 * MIB]
    assert table["growth_reason"].tolist() == ["", ""]
    assert table["pss_bytes"].tolist() == [140 * MIB, 190 * MIB]  # not that before the forks


def test_what_the_main_process_writes_to_is_no_growth_of_its_only_worker() -> None:
    run = run_of(workers=1)
    with_launcher(run, [(0, 0, 90, 20, 300), (0, 4, 140, 70, 302)])
    run.batches["minor_faults"] = 0
    assert of(run)["growth_bytes"].tolist() == [2 * MIB]
    run.batches["minor_faults"] = 3 * MIB // 4096 / len(run.batches)
    assert of(run)["growth_bytes"].tolist() == [pytest.approx(5 * MIB)]


def test_workers_that_come_and_go_are_no_growth_of_the_main_process() -> None:
    run = Plan(workers=0).run()
    run.workers = pd.DataFrame(columns=["pid", "worker"])
    with_launcher(run, [(-1, 0, 300, 300, 300), (-1, 4, 100, 20, 310)])
    assert of(run)["growth_bytes"].tolist() == [10 * MIB]


def test_a_reading_of_the_start_is_not_compared_with_a_later_one() -> None:
    run = run_of()
    later = run.resources.assign(time_ns=LATE, pss=100 * MIB)
    run.resources = pd.concat([run.resources, later], ignore_index=True)
    table = of(run)
    assert table["growth_bytes"].isna().all()
    assert set(table["growth_reason"]) == {NOT_ALIKE}
    assert table["pss_bytes"].tolist() == [100 * MIB] * 2


def test_without_a_launcher_readings_count_while_as_many_workers_share() -> None:
    run = run_of()
    times = [LATE, LATE + 1000 * MS, LATE + 2000 * MS]
    pss = [100, 103, 250]
    pid = run.workers["pid"].iloc[0]
    rows = {"rank": 0, "pid": pid, "worker": 0, "time_ns": times, "pss": [MIB * x for x in pss]}
    run.resources = pd.concat([run.resources, pd.DataFrame(rows)], ignore_index=True)
    run.workers.loc[1, "end_ns"] = LATE + 1500 * MS  # the pages have one sharer fewer
    table = of(run)
    assert table.loc[0, "growth_bytes"] == 3 * MIB


def test_a_run_without_readings_has_no_rows() -> None:
    run = Plan().run()
    assert not len(of(run))
    run.resources = pd.DataFrame()
    assert not len(memory_readings(scopes(run)[0]))
    assert math.isnan(summarise(run).loaders[0].workers["pss_bytes"][0])


def test_the_report_says_that_readings_cannot_be_compared() -> None:
    run = run_of()
    later = run.resources.assign(time_ns=LATE)
    run.resources = pd.concat([run.resources, later], ignore_index=True)
    file = io.StringIO()
    terminal.write(plain_console(file), summarise(run))
    assert "no two readings of the memory of that worker can" in file.getvalue()
