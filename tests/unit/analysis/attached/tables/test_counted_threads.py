"""Counters of a watched program: sums, metrics, and how far two clocks agree."""

import io
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import pytest

from lotus.analysis.attached.evidence.evidence import CounterEvidence
from lotus.analysis.attached.tables.counted_threads import CounterSummary, summarise_counters
from lotus.analysis.attached.verdict.sampled_verdict import summarise
from lotus.reporters.base.console import plain_console
from lotus.reporters.run.attached import attached_counters, attached_page, attached_report
from native_map.events import formulas
from tests.unit.sampled_program import MAIN, STEP, WAIT, Program, always, operation, turns

SOFTWARE = {"task_clock": 1e9, "page_faults": 7, "context_switches": 3}
ZEN5 = {
    "cycles": 4e9, "instructions": 10e9, "slots_frontend": 8e9, "slots_backend": 16e9,
    "ops_retired": 6e9, "ops_dispatched": 7e9,
}  # fmt: skip
Thread = tuple[int, int, dict[str, float], float]  # pid, tid, counts, share that was counted
_PROGRAM = Program(
    turns((WAIT, 1), (STEP, 1)), [always(operation("Decode")), always(operation("Decode"))]
)


def counted(
    threads: Sequence[Thread],
    uarch: str = "amd_zen5",
    clocks: Sequence[tuple[int, int, int]] = (),
    notes: Sequence[str] = (),
) -> CounterEvidence:
    """Threads that were on a core for a second; a count of -1 was not counted at all."""
    events = list(dict.fromkeys(name for thread in threads for name in thread[2]))
    rows = [
        (pid, tid, events.index(name), max(int(count * share), 0), 10**9,
         0 if count < 0 else int(1e9 * share))
        for pid, tid, counts, whole in threads
        for name, count in counts.items()
        for share in (1.0 if name in SOFTWARE else whole,)
    ]  # fmt: skip
    names = ["pid", "tid", "event", "count", "enabled_ns", "running_ns"]
    return CounterEvidence(
        uarch=uarch,
        metrics={},
        events=tuple(events),
        counts=pd.DataFrame(rows, columns=names).astype("int64"),
        clocks=pd.DataFrame(list(clocks), columns=["pid", "clock_ns", "before_ns"]).astype("int64"),
        notes=tuple(notes),
    )


def a_program(share: float = 1.0) -> CounterEvidence:
    """A main process of two threads, and two workers."""
    events = SOFTWARE | ZEN5
    return counted(
        [
            (MAIN, MAIN, events, share),
            (MAIN, 900, events, share),
            (MAIN + 1, MAIN + 1, events, share),
            (MAIN + 2, MAIN + 2, events, share),
        ],
        clocks=[(MAIN, 2 * 10**9, 0), (MAIN + 1, 10**9, 0), (MAIN + 2, 10**9, 0)],
    )


def summary_of(evidence: CounterEvidence) -> CounterSummary:
    summary = summarise_counters(replace(_PROGRAM.evidence(), counters=evidence))
    assert summary is not None
    return summary


def text_of(evidence: CounterEvidence) -> str:
    file = io.StringIO()
    summary = summarise(replace(_PROGRAM.evidence(), counters=evidence))
    attached_report.write(plain_console(file), summary)
    return " ".join(file.getvalue().split())


def test_threads_are_added_up_by_kind_of_process_and_of_thread() -> None:
    summary = summary_of(a_program())
    rows = summary.rows.set_index(["process", "thread"])
    assert rows.index.tolist() == [("main", "first"), ("main", "others"), ("workers", "first")]
    assert rows["threads"].tolist() == [1, 1, 2]
    assert rows["cycles"].tolist() == [4e9, 4e9, 8e9]
    assert rows["page_faults"].tolist() == [7, 7, 14]
    assert rows["counted_share"].tolist() == [1, 1, 1]
    assert summary.each["pid"].tolist() == [MAIN, MAIN, MAIN + 1, MAIN + 2]
    assert not summary.remarks


def test_metrics_are_those_of_the_formulas_of_the_cpu() -> None:
    summary = summary_of(a_program())
    expected = formulas.metrics(pd.DataFrame([ZEN5]), "amd_zen5").iloc[0]
    assert expected["ipc"] == 2.5
    for name in ("ipc", "frontend_bound", "backend_bound", "retiring", "bad_speculation"):
        assert summary.metrics[name].tolist() == pytest.approx([expected[name]] * 3)
        assert summary.each[name].tolist() == pytest.approx([expected[name]] * 4)


def test_where_others_had_the_counters_counts_are_scaled_and_the_share_is_told() -> None:
    summary = summary_of(a_program(share=0.25))
    assert summary.rows["cycles"].tolist() == pytest.approx([4e9, 4e9, 8e9])
    assert summary.rows["counted_share"].tolist() == pytest.approx([0.25] * 3)
    assert summary.rows["task_clock"].tolist() == [1e9, 1e9, 2e9]
    assert "25%" in text_of(a_program(share=0.25))


def test_what_was_not_counted_is_not_zero() -> None:
    summary = summary_of(
        counted([(MAIN, MAIN, SOFTWARE | dict.fromkeys(ZEN5, -1.0), 1.0),
                 (MAIN + 1, MAIN + 1, SOFTWARE | ZEN5, 1.0)])
    )  # fmt: skip
    rows = summary.rows.set_index("process")
    assert pd.isna(rows.loc["main", "cycles"])
    assert rows.loc["main", "counted_share"] == 0
    assert rows.loc["workers", "cycles"] == 4e9
    assert pd.isna(summary.metrics["ipc"].iloc[0])
    document = attached_counters.document(summary)
    assert pd.isna(document["rows"][0]["counts"]["cycles"])


def two_workers(events: dict[str, float]) -> CounterEvidence:
    """Two equal workers, of which the second has these events."""
    return counted(
        [(MAIN + 1, MAIN + 1, SOFTWARE | ZEN5, 1.0), (MAIN + 2, MAIN + 2, SOFTWARE | events, 1.0)]
    )


@pytest.mark.parametrize("events", [dict.fromkeys(ZEN5, -1.0), {}])
def test_a_worker_that_others_or_the_kernel_kept_from_counting_does_not_count_as_idle(
    events: dict[str, float],
) -> None:
    summary = summary_of(two_workers(events))
    assert summary.rows["cycles"].tolist() == [8e9]
    assert summary.rows["counted_share"].tolist() == [0.5]
    assert summary.rows["task_clock"].tolist() == [2e9]
    assert summary.each["cycles"].iloc[0] == 4e9
    assert pd.isna(summary.each["cycles"].iloc[1])
    assert "50%" in text_of(two_workers(events))


def test_a_thread_that_was_on_no_core_counted_nothing() -> None:
    evidence = counted([(MAIN, MAIN, SOFTWARE, 1.0)])
    evidence.counts[["count", "enabled_ns", "running_ns"]] = 0
    assert summary_of(evidence).rows["task_clock"].tolist() == [0]


def test_without_hardware_counters_software_events_stand_and_a_line_says_so() -> None:
    evidence = counted([(MAIN, MAIN, SOFTWARE, 1.0)], notes=["this VM has no hardware counters"])
    summary = summary_of(evidence)
    assert not summary.hardware
    assert [title for title, _ in attached_counters.tables(summary)] == [attached_counters.TITLE]
    text = text_of(evidence)
    assert "main process: main thread 1 1.00 s 3 7" in text
    assert "Counters: this VM has no hardware counters." in text
    assert "IPC" not in text


def test_where_nothing_was_counted_there_is_no_table() -> None:
    evidence = counted([], uarch="", notes=["the kernel refuses counters to this user"])
    assert attached_counters.tables(summary_of(evidence)) == []
    assert "the kernel refuses counters to this user" in text_of(evidence)


def test_a_cpu_that_lotus_was_not_tried_on_is_named_so() -> None:
    events = {"cycles": 4e9, "instructions": 10e9}
    text = text_of(counted([(MAIN, MAIN, events, 1.0)], uarch="intel_skylake"))
    assert "has not been tried on this CPU" in text
    assert "has not been tried on this CPU" not in text_of(a_program())


@pytest.mark.parametrize(
    ("clock", "before", "words"),
    [
        (1.04e9, 0, ""),
        (0.96e9, 0, ""),
        (1.5e9, 0, "by the scheduler for 1.50 s: the counters miss what threads did before"),
        (0.5e9, 0, "by the scheduler for 500 ms: the counters also count time that interrupts"),
        (1e9, 400_000_000, "had been on cores for 400 ms before, which is not counted"),
        (1e9, 40_000_000, ""),
        (-1, 0, ""),
        # The worker has ended.
        (-1, 400_000_000, "had been on cores for 400 ms before, which is not counted"),
        (-1, 40_000_000, ""),
    ],
)
def test_two_clocks_of_one_time_are_compared(clock: float, before: int, words: str) -> None:
    evidence = counted(
        [(MAIN + 1, MAIN + 1, SOFTWARE, 1.0)], clocks=[(MAIN + 1, int(clock), before)]
    )
    remarks = " ".join(summary_of(evidence).remarks)
    assert words in remarks
    assert bool(words) == bool(remarks)


def test_the_page_has_the_tables() -> None:
    summary = summarise(replace(_PROGRAM.evidence(), counters=a_program()))
    (section,) = (part for part in attached_page.sections(summary) if part.title == "Counters")
    assert attached_counters.HARDWARE_TITLE in section.parts


def test_what_was_not_asked_for_is_not_told() -> None:
    summary = summarise(_PROGRAM.evidence())
    assert summary.counters is None
    assert attached_report.document(summary)["counters"] is None
