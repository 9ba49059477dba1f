"""Processes of a watched program, in as few rows as tell of them."""

import pytest

from lotus.analysis.attached import phases
from lotus.analysis.attached.sampled_verdict import AttachedSummary, summarise
from lotus.reporters.run import attached_report
from tests.unit.sampled_program import STEP, WAIT, Program, always, between, operation, turns

BLUR = operation("Blur")


def summary_of(program: Program) -> AttachedSummary:
    return summarise(program.evidence())


def names_of(summary: AttachedSummary) -> list[str]:
    return [row[1] for row in attached_report.process_cells(summary)[1]]


def test_workers_that_ended_share_a_row() -> None:
    shutdown = (phases.SHUTDOWN, "")
    main = turns((WAIT, 40), (STEP, 55), (shutdown, 5))
    ends = (95, 195, 295, 395, 500)
    workers = [between(end - 95, end, always(BLUR)) for end in ends for _ in range(2)]
    summary = summary_of(Program(main, workers))
    assert names_of(summary) == ["main", "worker 0", "worker 1", "8 that ended"]
    last = summary.process_rows.iloc[-1]
    assert last["cores_used"] == pytest.approx(8 * summary.processes["cores_used"].iloc[1])
    assert last["computing_share"] == pytest.approx(1.0)
    assert len(summary.processes) == 11
    # One that ended is named.
    one = Program(turns((WAIT, 1)), [between(0, 90, always(BLUR)), always(BLUR)])
    assert names_of(summary_of(one)) == ["main", "worker 1", "worker 0, ended"]


def test_many_workers_are_counted() -> None:
    names = names_of(summary_of(Program(turns((WAIT, 1), (STEP, 1)), [always(BLUR)] * 40, 100)))
    assert names[:2] == ["main", "worker 0"]
    assert names[-2:] == ["worker 22", "17 more workers"]
