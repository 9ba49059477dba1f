"""What one worker takes, as a process tells it."""

import os
from dataclasses import replace

import numpy as np
import pytest

from lotus.inside.tune.candidates.processes import worker_processes
from lotus.tune.search.limits.resource_costs import ResourceCosts

MIB = 1 << 20


def test_negative_bytes_are_refused() -> None:
    known = ResourceCosts(batch_bytes=5, shared_bytes=5, pipe_bytes=0, worker_bytes=7)
    with pytest.raises(ValueError, match="pipe_bytes is -1"):
        replace(known, pipe_bytes=-1)


def test_memory_that_is_taken_is_private() -> None:
    before = worker_processes.private_bytes(os.getpid())
    if not before:
        pytest.skip("this kernel has no smaps_rollup")
    taken = np.ones(64 * MIB, np.uint8)
    after = worker_processes.private_bytes(os.getpid())
    assert after - before > 48 * MIB  # what the process gave back meanwhile is not in it
    del taken


def test_the_memory_of_a_process_that_is_gone_is_not_known() -> None:
    assert worker_processes.private_bytes(-1) == 0
