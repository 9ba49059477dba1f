"""A note on time without a core that was not measured."""

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.machine.unmeasured_run_delay import without_core
from lotus.analysis.summary import summarise
from lotus.reporters.run import short_report
from tests.unit.simulated import Plan

DELAYS = {"batches": ["run_delay_ns"], "waits": ["wait_run_delay_ns", "step_run_delay_ns"]}


def tables(delay: float, cpu: float, ranks: int = 1) -> dict[str, pd.DataFrame]:
    frame = pd.DataFrame({"rank": range(ranks), "fetch_ns": 1.0})
    return {
        name: frame.assign(
            **dict.fromkeys(columns, delay),
            **{column.replace("run_delay", "process_cpu"): cpu for column in columns},
        )
        for name, columns in DELAYS.items()
    }


def test_what_was_measured_needs_no_note() -> None:
    assert without_core(tables(delay=0.0, cpu=1.0)) == ""
    assert without_core(tables(delay=0.0, cpu=1.0, ranks=0)) == ""


@pytest.mark.parametrize(
    ("cpu", "why"), [(1.0, "CONFIG_SCHEDSTATS=y"), (np.nan, "an older lotus recorded")]
)
def test_it_says_why_and_what_it_does_to_the_verdict(cpu: float, why: str) -> None:
    note = without_core(tables(delay=np.nan, cpu=cpu))
    assert note.startswith("Time without a core was not measured: ")
    assert why in note
    assert "not named as causes" in note


def test_ranks_that_lack_it_are_named() -> None:
    of_two = tables(delay=5.0, cpu=1.0, ranks=2)
    for name, columns in DELAYS.items():
        of_two[name].loc[1, columns] = np.nan
    assert without_core(of_two).startswith("Time without a core was not measured in rank 1: ")


def test_batches_that_were_not_recorded_say_nothing() -> None:
    frames = tables(delay=np.nan, cpu=np.nan)
    frames["batches"]["fetch_ns"] = np.nan
    frames["waits"] = frames["waits"].drop(columns="fetch_ns")
    assert without_core(frames) == ""


def test_the_end_of_a_trace_says_it() -> None:
    run = Plan().run()
    run.batches["run_delay_ns"] = np.nan
    run.batches["process_cpu_ns"] = run.batches["cpu_ns"]
    assert any(note.startswith("Time without a core") for note in summarise(run).notes)
    assert "Time without a core was not measured" in "\n".join(short_report.short_report(run))
