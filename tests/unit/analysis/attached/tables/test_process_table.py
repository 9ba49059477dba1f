"""Processes of a watched program, in as few rows as tell of them."""

from dataclasses import replace

import pytest

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.shares.loop_shares import sampled
from lotus.analysis.attached.tables.process_table import grouped, processes
from lotus.analysis.attached.verdict.sampled_verdict import AttachedSummary, summarise
from lotus.reporters.run.attached import attached_report
from tests.unit.sampled_program import (
    IDLE,
    MAIN,
    STEP,
    WAIT,
    Program,
    always,
    between,
    job,
    operation,
    turns,
)

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
    assert names_of(summary_of(one)) == ["main", "worker 0, ended", "worker 1"]


def test_workers_of_two_loaders_have_numbers_of_their_own() -> None:
    """Two train and two validate: two at a time is what each loop has."""
    evidence = Program(turns((WAIT, 1), (STEP, 1)), [always(BLUR)] * 4, 100).evidence()
    seen = sampled(evidence)
    rows = grouped(processes(evidence, seen.looks), evidence, workers=2)
    assert rows["worker"].tolist() == [-1, 0, 1, 2, 3]


def test_many_workers_are_counted() -> None:
    names = names_of(summary_of(Program(turns((WAIT, 1), (STEP, 1)), [always(BLUR)] * 40, 100)))
    assert names[:2] == ["main", "worker 0"]
    assert names[-2:] == ["worker 22", "17 more workers"]


def test_the_last_workers_of_a_program_that_ends_keep_their_rows() -> None:
    """A slow one would be hidden by the medians of all."""
    slow = turns((BLUR, 1), (IDLE, 9))
    threads = [
        between(0, 200, always(BLUR)),
        between(0, 200, always(BLUR)),
        between(210, 480, always(BLUR)),
        between(210, 470, slow),
    ]
    ended = Program(turns((WAIT, 1), (STEP, 1)), threads, facts={"state": "ended"})
    summary = summary_of(ended)
    assert names_of(summary) == ["main", "worker 0, ended", "worker 1, ended", "2 that ended"]
    assert summary.process_rows["computing_share"].iloc[2] == pytest.approx(0.1)


def test_workers_of_which_nothing_was_seen_have_no_row_of_their_own() -> None:
    spans = ((0, 90), (0, 90), (100, 500), (100, 500))
    threads = [between(first, last, always(BLUR)) for first, last in spans]
    evidence = Program(turns((WAIT, 1), (STEP, 1)), threads).evidence()
    unseen = ~evidence.looks["pid"].isin([MAIN + 1])
    rows = names_of(summarise(replace(evidence, looks=evidence.looks[unseen])))
    assert rows == ["main", "worker 0", "worker 1", "2 that ended"]


def test_workers_keep_their_numbers_where_no_loop_was_met() -> None:
    evidence = Program(always(WAIT), [always(BLUR)] * 3).evidence()
    blind = replace(evidence, samples=evidence.samples.head(0))
    assert names_of(summarise(blind)) == ["main", "worker 0", "worker 1", "worker 2"]


def test_workers_keep_their_numbers_in_runs_that_do_not_tell_who_ended() -> None:
    threads = [between(0, 240, always(BLUR)), between(250, 500, always(BLUR))]
    evidence = Program(turns((WAIT, 1), (STEP, 1)), threads).evidence()
    evidence.processes["ended"] = -1
    assert names_of(summarise(evidence)) == ["main", "worker 0", "worker 1"]


def test_main_processes_are_no_workers() -> None:
    ranks = [Program(turns((WAIT, 1), (STEP, 1)), ticks=100)] * 30
    evidence = job(*ranks)
    ended = evidence.processes["pid"] == evidence.mains[24]
    evidence.processes.loc[ended, "ended"] = 1
    assert names_of(summarise(evidence))[-1] == "6 more processes"


def test_without_processes_there_are_no_rows() -> None:
    evidence = Program(always(WAIT), ticks=100).evidence()
    empty = replace(
        evidence, processes=evidence.processes.head(0), samples=evidence.samples.head(0)
    )
    assert names_of(summarise(empty)) == []
