"""Programs in which nothing moves, as seen from outside."""

from dataclasses import replace

import pandas as pd
import pytest

from lotus.analysis.attached import phases
from lotus.analysis.attached.evidence import AttachEvidence
from lotus.analysis.attached.sampled_verdict import AttachedSummary, summarise, with_loop
from lotus.common.errors import LotusError
from lotus.reporters.run import attached_report
from tests.unit.sampled_program import IDLE, STEP, WAIT, At, Program, always, operation

BLUR, OUTSIDE = operation("Blur"), (phases.OUTSIDE, "")


def with_frames(evidence: AttachEvidence, phase: str, *frames: tuple[str, int]) -> AttachEvidence:
    """The same with frames (function, line) of a phase's label."""
    label = int(evidence.labels.index[evidence.labels["phase"] == phase][0])
    rows = [
        (label, depth, function, "/app/train.py", line)
        for depth, (function, line) in enumerate(frames)
    ]
    columns = ["label", "depth", "function", "file", "line"]
    return replace(evidence, chains=pd.DataFrame(rows, columns=columns))


def words_of(summary: AttachedSummary) -> str:
    assert summary.verdict is not None
    return attached_report.verdict_words(summary.verdict)


def test_workers_at_a_lock_that_is_never_released() -> None:
    stuck = Program(always(WAIT), [always(BLUR)] * 2, blocked={BLUR: "shared-lock"})
    evidence = with_frames(stuck.evidence(), phases.OPERATION, ("Data.read", 7), ("enter", 9))
    summary = summarise(evidence)
    assert words_of(summary) == "NOTHING MOVES (sampled)"
    verdict = summary.verdict
    assert verdict is not None
    assert "Nothing moved in the 10.0 s" in verdict.summary
    (cause,) = verdict.causes
    assert cause.title == "Blur (waits for a lock that processes share, not computing)"
    assert "Find who holds the lock" in cause.advice
    assert "py-spy dump --native --pid 100" in cause.advice
    places = summary.loops[0].places
    assert places is not None
    _, rows = attached_report.place_cells(places)
    assert rows[0] == ["100", "main", "", "waits for the next batch", "events"]
    assert rows[1][3:] == ["enter (train.py:9)", "shared-lock"]


def test_one_worker_hangs_and_the_others_have_nothing_to_do() -> None:
    """Those that are idle wake now and then."""
    stuck = Program(always(WAIT), [always(BLUR), always(IDLE)], blocked={BLUR: "socket"})
    evidence = stuck.evidence()
    wakes = evidence.looks.index[evidence.looks["pid"] == 102][::100]
    evidence.looks.loc[wakes, "cpu_ns"] = 100_000
    assert words_of(summarise(evidence)) == "NOTHING MOVES (sampled)"


def test_a_step_that_hangs() -> None:
    stuck = Program(always(STEP), [always(IDLE)], blocked={STEP: "lock"})
    summary = summarise(with_frames(stuck.evidence(), phases.STEP, ("main", 60), ("save", 12)))
    assert words_of(summary) == "NOTHING MOVES (sampled)"
    assert summary.verdict is not None
    assert "a single step takes longer" in summary.verdict.summary
    assert "Find who holds the lock" in summary.verdict.causes[0].advice


def test_workers_that_have_ended_while_the_loop_waits() -> None:
    def gone(tick: int) -> At | None:
        return None

    summary = summarise(Program(always(WAIT), [gone, gone]).evidence())
    assert words_of(summary) == "NOTHING MOVES (sampled)"
    assert summary.verdict is not None
    assert "workers that have ended, all 2 of them" in summary.verdict.summary
    assert summary.verdict.causes == []
    assert summary.loops[0].started_ns == 0


@pytest.mark.parametrize(
    "program",
    [
        Program(always(WAIT), [always(BLUR)] * 2),
        Program(always(STEP), [always(IDLE)]),
        Program(lambda tick: STEP if tick % 20 else WAIT, [always(IDLE)], blocked={STEP: "events"}),
    ],
)
def test_what_moves(program: Program) -> None:
    summary = summarise(program.evidence())
    assert "NOTHING MOVES" not in words_of(summary)
    assert summary.loops[0].places is None


def test_outside_of_all_loops() -> None:
    evidence = Program(always(OUTSIDE), blocked={OUTSIDE: "lock"}).evidence()
    evidence = with_frames(evidence, phases.OUTSIDE, ("main", 70), ("barrier", 8))
    with pytest.raises(LotusError, match=r"it stands at barrier \(train.py:8\); see"):
        with_loop(summarise(evidence))
