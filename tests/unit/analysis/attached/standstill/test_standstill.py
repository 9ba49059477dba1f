"""Programs in which nothing moves, as seen from outside."""

import re
from dataclasses import replace

import pandas as pd
import pytest

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.evidence.evidence import AttachEvidence
from lotus.analysis.attached.verdict.sampled_verdict import AttachedSummary, summarise, with_verdict
from lotus.common.errors import LotusError
from lotus.reporters.run.attached import attached_report
from tests.unit.sampled_program import IDLE, STEP, TICK, WAIT, At, Program, always, operation

BLUR, READ, OUTSIDE = operation("Blur"), operation("Read"), (phases.OUTSIDE, "")


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
    assert rows[0] == ["100", "main", "", "waits for the next batch (train.py:59)", "events"]
    assert rows[1][3:] == ["enter (train.py:9)", "shared-lock"]


def test_one_worker_hangs_and_the_others_have_nothing_to_do() -> None:
    """Those that are idle wake now and then."""
    stuck = Program(always(WAIT), [always(BLUR), always(IDLE)], blocked={BLUR: "socket"})
    evidence = stuck.evidence()
    wakes = evidence.looks.index[evidence.looks["pid"] == 102][::100]
    evidence.looks.loc[wakes, "cpu_ns"] = 100_000
    assert words_of(summarise(evidence)) == "NOTHING MOVES (sampled)"


def hangs_from(first: int) -> Program:
    """It moves until a tick; then, both workers wait for a lock."""
    main = lambda tick: (STEP if tick % 2 else WAIT) if tick < first else WAIT  # noqa: E731
    worker = lambda tick: READ if tick < first else BLUR  # noqa: E731
    return Program(main, [worker] * 2, blocked={BLUR: "shared-lock"})


def test_a_program_that_moved_before_it_hung() -> None:
    summary = summarise(hangs_from(200).evidence())
    assert words_of(summary) == "NOTHING MOVES (sampled)"
    assert summary.verdict is not None
    took = re.search(r"Nothing moved in the last (\S+) s of the loop", summary.verdict.summary)
    assert took is not None
    assert float(took[1]) == pytest.approx(6.0, abs=0.2)
    assert summary.verdict.causes[0].title.startswith("Blur (waits for a lock")
    # Less than five seconds may be one slow sample.
    assert "NOTHING MOVES" not in words_of(summarise(hangs_from(300).evidence()))


def test_workers_that_get_no_core_do_not_stand_still() -> None:
    """The kernel counts the time without a core when it is over."""
    evidence = Program(always(WAIT), [always(BLUR)] * 2).evidence()
    starved = replace(evidence, looks=evidence.looks.assign(cpu_ns=0, delay_ns=0, process_ns=0))
    assert "NOTHING MOVES" not in words_of(summarise(starved))


def test_a_program_that_stood_still_as_long_before() -> None:
    """As one whose samples sleep for seconds."""
    main = lambda tick: WAIT if tick % 400 < 300 else STEP  # noqa: E731
    slow = Program(main, [always(BLUR)], ticks=700, blocked={BLUR: "sleep"})
    assert "NOTHING MOVES" not in words_of(summarise(slow.evidence()))


@pytest.mark.parametrize("first", [0, 150])
def test_a_program_that_was_killed_as_it_hung(first: int) -> None:
    """It takes time on a core to be killed."""
    program = hangs_from(first)
    program.facts["state"] = "ended"
    evidence = program.evidence()
    end = evidence.looks["time_ns"].max()
    evidence.looks.loc[evidence.looks["time_ns"] > end - 4 * TICK, "cpu_ns"] = TICK // 2
    summary = summarise(evidence)
    assert words_of(summary) == "NOTHING MOVES (sampled)"
    assert summary.verdict is not None
    assert "If it hangs again" in summary.verdict.causes[0].advice
    assert any("ended after 10.0 s" in remark for remark in summary.remarks)


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


def in_a_thread(evidence: AttachEvidence, used: int) -> AttachEvidence:
    """The same with the loop in another thread, while all of the main process used `used` ns."""
    main = evidence.samples["pid"] == 100
    looked = evidence.looks["pid"] == 100
    return replace(
        evidence,
        samples=evidence.samples.assign(tid=evidence.samples["tid"].where(~main, 105)),
        looks=evidence.looks.assign(
            cpu_ns=evidence.looks["cpu_ns"].where(~looked, 0),
            process_ns=evidence.looks["process_ns"].where(~looked, used),
            reason=evidence.looks["reason"].where(~looked, "lock"),
        ),
    )


@pytest.mark.parametrize(
    ("program", "phase"),
    [
        (Program(always(STEP), [always(IDLE)]), phases.STEP),
        (Program(always(BLUR)), phases.OPERATION),
    ],
)
def test_a_loop_in_another_thread_stands_still_if_the_whole_process_does(
    program: Program, phase: str
) -> None:
    """Looks are at main threads only."""
    evidence = with_frames(program.evidence(), phase, ("run", 5))
    for used in (3 * TICK, 1000):
        assert "NOTHING MOVES" not in words_of(summarise(in_a_thread(evidence, used)))
    still = summarise(in_a_thread(evidence, 0))
    assert words_of(still) == "NOTHING MOVES (sampled)"
    places = still.loops[0].places
    assert places is not None
    rows = attached_report.place_cells(places)[1]
    assert [row[1:3] for row in rows if row[0] == "100"] == [["thread", "without a name"]]


def test_threads_that_compute_for_a_main_thread_move() -> None:
    stuck = Program(always(STEP), [always(IDLE)], blocked={STEP: "lock"}).evidence()
    for used, moves in ((TICK // 100, False), (TICK, True)):
        looks = stuck.looks.assign(process_ns=used)
        words = words_of(summarise(replace(stuck, looks=looks)))
        assert ("NOTHING MOVES" not in words) == moves


def test_a_main_process_that_makes_batches_does_not_wait_for_workers_that_have_ended() -> None:
    def gone(tick: int) -> At | None:
        return None

    summary = summarise(Program(always(BLUR), [gone, gone]).evidence())
    assert "NOTHING MOVES" not in words_of(summary)


def test_a_program_that_computes_outside_of_all_loops() -> None:
    evidence = Program(always(OUTSIDE), blocked={OUTSIDE: "lock"}).evidence()
    evidence = with_frames(evidence, phases.OUTSIDE, ("main", 70))
    busy = replace(evidence, looks=evidence.looks.assign(process_ns=TICK))
    words = (
        r"in no loop over a DataLoader.*\. In 100% of its stacks it stands at main \(train.py:70\)"
    )
    with pytest.raises(LotusError, match=words):
        with_verdict(summarise(busy))


def test_outside_of_all_loops() -> None:
    evidence = Program(always(OUTSIDE), blocked={OUTSIDE: "lock"}).evidence()
    evidence = with_frames(evidence, phases.OUTSIDE, ("main", 70), ("barrier", 8))
    with pytest.raises(LotusError, match=r"it stands at barrier \(train.py:8\); see"):
        with_verdict(summarise(evidence))
