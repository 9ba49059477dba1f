"""What one worker takes, from a run's tables and from a process."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lotus.errors import LotusError
from lotus.tune import costs
from tests.unit.simulated import Plan

MIB = 1 << 20


def simulated(
    size: int = 1000, sent: float = 400.0, pss: tuple[int, ...] = (90, 100), rss: int = 150
) -> SimpleNamespace:
    run = Plan(workers=1, batches=6).run()
    run.batches["bytes"] = size
    run.batches["send_bytes"] = sent
    run.resources = pd.DataFrame(
        {
            "rank": 0,
            "pid": 100,
            "worker": 0,
            "time_ns": range(len(pss)),
            "pss": [one * MIB for one in pss],
            "rss": rss * MIB,
        }
    )
    return run


def test_the_largest_batch_and_the_largest_worker_count() -> None:
    run = simulated(size=4 * MIB)
    run.batches.loc[2, "bytes"] = 9 * MIB
    found = costs.from_run(run, main_bytes=7, tensors=3)
    assert found.batch_bytes == found.shared_bytes == 9 * MIB
    assert found.worker_bytes == 100 * MIB
    assert found.pipe_bytes == 400
    assert (found.main_bytes, found.tensors, found.batches) == (7, 3, 6)
    assert found.start_method == "fork"


def test_arrays_go_through_the_pipe() -> None:
    found = costs.from_run(simulated(size=4 * MIB, sent=4 * MIB + 200))
    assert found.pipe_bytes == 4 * MIB + 200
    assert found.shared_bytes < 4096


def test_of_a_mixed_batch_no_part_is_left_out() -> None:
    found = costs.from_run(simulated(size=5 * MIB, sent=2 * MIB + 900))
    assert 3 * MIB <= found.shared_bytes <= 3 * MIB + 4096


def test_a_size_that_was_not_recorded_when_sent_is_taken_as_shared() -> None:
    found = costs.from_run(simulated(size=5 * MIB, sent=np.nan))
    assert (found.shared_bytes, found.pipe_bytes) == (5 * MIB, 0)


def test_where_no_pss_is_told_the_resident_set_counts() -> None:
    assert costs.from_run(simulated(pss=(0, 0))).worker_bytes == 150 * MIB


def test_a_run_that_tells_too_little_says_so() -> None:
    with pytest.raises(LotusError, match=r"no worker's memory.*num_workers=1"):
        costs.from_run(simulated(pss=()))
    run = simulated()
    run.batches["bytes"] = np.nan
    with pytest.raises(LotusError, match="its size is not known"):
        costs.from_run(run)
    with pytest.raises(LotusError, match="there is no loader 5 in the run"):
        costs.from_run(simulated(), loader=5)


def test_a_run_without_a_loader_says_so() -> None:
    run = simulated()
    for name in ("batches", "waits", "epochs"):
        setattr(run, name, getattr(run, name).iloc[:0])
    with pytest.raises(LotusError, match="no loader was iterated in the run; record one with"):
        costs.from_run(run)


def test_negative_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="pipe_bytes is -1"):
        replace(costs.from_run(simulated()), pipe_bytes=-1)


def test_private_memory_is_what_the_kernel_calls_private(tmp_path: Path) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/smaps_rollup").write_text(
        "00400000-7ffc [rollup]\nRss: 900 kB\nPss: 300 kB\nShared_Clean: 500 kB\n"
        "Private_Clean:      40 kB\nPrivate_Dirty:     112 kB\nPrivate_Hugetlb: 0 kB\nPrivate_x\n"
    )
    assert costs.private_bytes(7, tmp_path) == 152 * 1024
    assert costs.private_bytes(8, tmp_path) is None
    (tmp_path / "proc/7/smaps_rollup").write_text("")
    assert costs.private_bytes(7, tmp_path) is None


def test_memory_that_is_taken_is_private() -> None:
    before = costs.private_bytes(os.getpid())
    if before is None:
        pytest.skip("this kernel has no smaps_rollup")
    taken = np.ones(64 * MIB, np.uint8)
    after = costs.private_bytes(os.getpid())
    assert after is not None
    assert after - before > 60 * MIB
    del taken
