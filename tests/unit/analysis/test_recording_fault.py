"""A loop of which the recording ended early, as on a full disk, is said to be known in part."""

import pandas as pd
import pytest

from lotus.analysis.summary import summarise
from lotus.format.process_reports import FAULT
from tests.unit.simulated import Plan


@pytest.mark.parametrize("of_main", [True, False])
def test_the_first_flaw_is_that_recording_stopped(of_main: bool) -> None:
    run = Plan(operations={"Slow": 5.0}).run()
    pid = int(run.epochs["pid"].iloc[0]) + (0 if of_main else 1_000_000)
    rows = [(f"{FAULT}OSError: [Errno 28] No space left on device", pid, 1, 0)]
    run.lost = pd.DataFrame(rows, columns=["what", "pid", "count", "bytes"])
    flaws = summarise(run).loaders[0].verdict.flaws
    told = [flaw for flaw in flaws if "stopped recording" in flaw]
    assert bool(told) == of_main
    if of_main:
        assert flaws[0] == told[0]
        assert "(OSError: [Errno 28] No space left on device)" in told[0]
