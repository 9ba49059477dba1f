"""Who holds the others up: named where it is so, by chance alone hardly ever, and why."""

import dataclasses
import io
import json
import math
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from rich.console import Console

from lotus.analysis.ranks.rank_reasons import processor
from lotus.analysis.ranks.rank_steps import ALONE, RankSteps
from lotus.analysis.ranks.rank_verdict import (
    LEAST_STEPS,
    RankSummary,
    last_shares,
    named,
    rank_summary,
)
from lotus.reporters.base.page import Chart, Table
from lotus.reporters.ranks import rank_charts, rank_report
from lotus.reporters.run import run_document, short_report
from tests.unit.analysis.ranks.test_rank_steps import MS, Job

HOSTILE = "\x1b[31mhost</script>\u202e"


def simulated(own: np.ndarray[Any, Any], hosts: list[str] | None = None) -> RankSteps:
    """The steps of ranks (R, K) that begin each at the same moment and take `own` each."""
    count, steps = own.shape
    ordered = np.sort(own, axis=0)
    at = np.arange(steps)
    last = own.argmax(axis=0)
    others = np.array([np.median(np.delete(own, row, axis=0), axis=0) for row in range(count)])
    late = (own - others).astype(np.float32)
    none = np.zeros((count, steps), np.float32)
    return RankSteps(
        synced=True, ranks=np.arange(count), hosts=hosts or ["a"] * count, world_size=count,
        loaders=[0], thinned=1, warm=np.ones(steps, bool), wait=none, step=own.astype(np.float32),
        sync=none, late=late, last=last, lead_second=ordered[-1] - ordered[-2],
        lead_median=late[last, at].astype(float), together=True, clock_error_ns=np.zeros(count),
        size=np.full(count, np.nan),
    )  # fmt: skip


def noise(rng: np.random.Generator, kind: str, count: int, steps: int) -> np.ndarray[Any, Any]:
    """Times of steps around 1 that vary by 20 %: independent, skewed, or alike for some steps."""
    if kind == "skewed":
        return rng.gamma(25, 1 / 25, (count, steps))
    values = rng.standard_normal((count, steps))
    if kind == "alike":
        for k in range(1, steps):
            values[:, k] = 0.8 * values[:, k - 1] + 0.6 * values[:, k]
    return np.maximum(1 + 0.2 * values, 0.1)


def rate(kind: str, count: int, steps: int, slower: float, times: int) -> tuple[float, float]:
    """(share of simulations that name rank 1, share that name another)."""
    rng = np.random.default_rng(5)
    right = wrong = 0
    for _ in range(times):
        own = noise(rng, kind, count, steps) * 50 * MS
        own[1] *= 1 + slower
        named_ranks = {int(row) for rows, _, _ in named(simulated(own)) for row in rows}
        right += 1 in named_ranks
        wrong += bool(named_ranks - {1})
    return right / times, wrong / times


@pytest.mark.parametrize("kind", ["independent", "skewed", "alike"])
@pytest.mark.parametrize("count", [2, 4])
def test_of_equal_ranks_hardly_ever_one_is_named(kind: str, count: int) -> None:
    """1,000 jobs of 100 steps whose ranks are equal: in less than 5 % a rank is called slow."""
    right, wrong = rate(kind, count, 100, 0.0, 1000)
    assert right + wrong < 0.05


@pytest.mark.parametrize(("slower", "least"), [(0.1, 0.5), (0.3, 0.99)])
def test_slow_ranks_are_named(slower: float, least: float) -> None:
    """Of 4 ranks whose steps vary by 20 %, one is slower, for 300 steps."""
    right, wrong = rate("independent", 4, 300, slower, 200)
    assert right >= least
    assert wrong <= 0.02


def test_a_difference_that_does_not_matter_is_not_named() -> None:
    own = np.full((4, 300), 50.0 * MS)
    own[2] *= 1.01
    steps = simulated(own)
    assert (steps.last == 2).all()
    assert named(steps) == []
    own[2] *= 1.05
    assert [rows.tolist() for rows, _, _ in named(simulated(own))] == [[2]]


def test_few_steps_name_nobody() -> None:
    own = np.full((2, LEAST_STEPS), 50.0 * MS)
    own[1] *= 2
    assert named(simulated(own))
    assert not named(simulated(own[:, :-1]))


def test_two_slow_ranks_are_both_named() -> None:
    own = noise(np.random.default_rng(2), "independent", 6, 300) * 50 * MS
    own[[1, 4]] *= 1.8
    assert sorted(rows.tolist() for rows, _, _ in named(simulated(own))) == [[1], [4]]


def test_a_slow_host_is_named_as_one_and_a_slow_rank_on_it_by_itself() -> None:
    hosts = ["a", "a", "a", "b", "b", "b"]
    own = noise(np.random.default_rng(3), "independent", 6, 400) * 50 * MS
    own[3:] *= 1.6
    [(rows, share, host)] = named(simulated(own, hosts))
    assert (rows.tolist(), host) == ([3, 4, 5], "b")
    assert share.fair == pytest.approx(0.5)
    assert share.share > 0.95
    own[3:] /= 1.6
    own[4] *= 1.6
    assert [(rows.tolist(), host) for rows, _, host in named(simulated(own, hosts))] == [
        ([4], None)
    ]


def test_shares_are_of_the_steps_that_a_rank_took_part_in() -> None:
    steps = simulated(np.random.default_rng(4).random((4, 200)) * MS)
    steps.late[3, 100:] = steps.sync[3, 100:] = np.nan
    last = np.where((steps.last == 3) & (np.arange(200) >= 100), 0, steps.last)
    steps = dataclasses.replace(steps, last=last)
    shares = last_shares(steps, np.ones(200, bool))
    assert [share.steps for share in shares] == [200, 200, 200, 100]
    assert shares[3].fair == pytest.approx(1 / 4)
    assert shares[0].fair == pytest.approx((1 / 4 + 1 / 3) / 2)
    for row, share in enumerate(shares):
        assert share.times == (last == row).sum()
        assert share.low <= share.share <= share.high


def test_the_interval_holds_the_share() -> None:
    """95 % intervals of a known share, 0.4, of 100 independent steps: 1,000 of them."""
    rng = np.random.default_rng(6)
    held = 0
    for _ in range(1000):
        last = (rng.random(100) >= 0.4).astype(int)
        own = np.ones((2, 100))
        own[last, np.arange(100)] = 2
        [first, _] = last_shares(simulated(own), np.ones(100, bool))
        held += first.low <= 0.4 <= first.high
    assert held >= 940


# -- why -------------------------------------------------------------------------------------------


def job(steps: int = 60, **options: Any) -> Job:
    """Three ranks of 2 ms of wait and 8 of step, with a little noise."""
    rng = np.random.default_rng(1)
    return Job(2 + rng.random((3, steps)), 8 + rng.random((3, steps)), **options)


def summary_of(made: Job) -> RankSummary:
    summary = rank_summary(made.run())
    assert summary is not None
    return summary


def report_text(summary: RankSummary) -> str:
    return " ".join([*rank_report.verdict(summary), *rank_report.remarks(summary)])


def slow_input(**options: Any) -> Job:
    made = job(
        sample={"Loader": [2.0, 2.0, 4.2], "Normalize": [0.5, 0.5, 0.5]},
        hosts=["a", "a", "b"], errors={"a": 0.0, "b": 0.05},
        cpus={2: {"affinity": 4, "logical": 8, "model": "old"}}, **options,
    )  # fmt: skip
    made.wait[2] += 9
    return made


def test_a_rank_whose_input_is_slow() -> None:
    summary = summary_of(slow_input())
    [straggler] = summary.stragglers
    why = straggler.why
    assert why is not None
    assert (straggler.ranks, why.kind, why.operation) == ([2], "input", "Loader")
    assert why.times == pytest.approx(2.1)
    assert why.sample_ns == pytest.approx(4.7 * MS)
    assert (why.cores, why.reference_cores) == (4, 8)
    # Waiting and step are all that its own time has more.
    assert why.wait_ns + why.step_ns == pytest.approx(why.own_ns - why.reference_own_ns)
    assert why.wait_ns == pytest.approx(9 * MS, rel=0.1)
    text = report_text(summary)
    assert text.startswith("Rank 2 on host b is last in 100% of 59 steps")
    assert f"on average {straggler.behind_ns / MS:.2f} ms after the others" in text
    assert (
        f"decode (default_loader) takes 2.1 times rank {why.reference}'s (4.20 ms a sample)" in text
    )
    assert "at 4 cores against 8, on old against simulated" in text
    assert straggler.cost_ns == pytest.approx(float(np.mean(summary.steps.lead_second[1:])))


def test_the_end_of_a_traced_job_names_it_too() -> None:
    run = slow_input().run()
    text = " ".join(" ".join(short_report.short_report(run)).split())
    assert rank_report.verdict(summary_of(slow_input()))[0] in text


def test_an_operation_inside_another_is_not_the_one_to_name() -> None:
    run = slow_input().run()
    inner = run.ops[run.ops["operation"] == "Loader"].assign(operation="Read", nested=True)
    inner["duration_ns"] = inner["duration_ns"] * np.where(inner["rank"] == 2, 3, 1)
    run.ops = pd.concat([run.ops, inner], ignore_index=True)
    summary = rank_summary(run)
    assert summary is not None
    why = summary.stragglers[0].why
    assert why is not None
    assert why.operation == "Loader"


def test_the_reference_is_the_middle_of_the_others() -> None:
    made = Job(np.full((5, 60), 2.0), np.full((5, 60), 8.0))
    made.step += np.array([3.0, 1.0, 2.0, 20.0, 0.0])[:, None]
    why = summary_of(made).stragglers[0].why
    assert why is not None
    assert why.reference == 1  # of 8, 9, 10 and 11 ms the lower middle
    assert why.step_ns == pytest.approx(19 * MS)


def test_operations_are_compared_by_sample_not_by_batch() -> None:
    made = slow_input(batch_size=[8, 8, 4])
    [straggler] = summary_of(made).stragglers
    assert straggler.why is not None
    assert straggler.why.times == pytest.approx(2.1)


def test_a_larger_batch_is_the_cause_where_it_is() -> None:
    made = job(batch_size=[4, 4, 12])
    made.step[2] *= 3
    [straggler] = summary_of(made).stragglers
    assert straggler.why is not None
    assert straggler.why.kind == "batch size"
    assert "It takes 12 samples a step, rank" in report_text(summary_of(made))


def test_a_slow_model_is_not_blamed_on_the_input() -> None:
    made = job(sample={"Loader": [2.0, 2.0, 2.0]})
    made.step[0] += 12
    summary = summary_of(made)
    [straggler] = summary.stragglers
    assert straggler.why is not None
    assert (straggler.ranks, straggler.why.kind, straggler.why.operation) == ([0], "step", "")
    assert "without input, is what takes longer" in report_text(summary)
    assert "decode (default_loader)" not in report_text(summary)


def test_fewer_workers_are_told_where_samples_cost_the_same() -> None:
    made = job(sample={"Loader": [2.0, 2.0, 2.0]}, workers=[4, 4, 1])
    made.wait[2] += 9
    text = report_text(summary_of(made))
    assert "Making a sample takes no longer than rank" in text
    assert "with 1 worker against 4" in text


def test_of_many_stragglers_some_are_explained_and_the_others_named() -> None:
    rng = np.random.default_rng(8)
    made = Job(np.ones((14, 800)), 8 + 4 * rng.random((14, 800)))
    made.step[:6] += 4
    summary = summary_of(made)
    explained = [rank for straggler in summary.stragglers for rank in straggler.ranks]
    assert sorted(explained + summary.more) == [0, 1, 2, 3, 4, 5]
    assert len(summary.more) == 2
    low, high = summary.more
    assert f"Ranks {low} and {high} are often last as well: see the table." in report_text(summary)


def test_equal_ranks_are_said_to_be_alike() -> None:
    summary = summary_of(job(200))
    assert summary.stragglers == []
    assert summary.nearest is not None
    assert report_text(summary).startswith("No rank holds the others up: rank ")


def test_the_table_adds_up() -> None:
    summary = summary_of(slow_input())
    table = summary.table
    assert table["last_steps"].sum() == summary.decided == 59
    whole = table["wait_ns"] + table["step_ns"] + table["sync_ns"]
    assert whole.to_numpy() == pytest.approx(np.full(3, summary.mean_ns), rel=1e-6)
    assert table["workers"].tolist() == [2, 2, 2]
    assert (summary.over["last"].iloc[1:] == 2).all()


# -- what is known of broken and partial jobs ------------------------------------------------------


def test_missing_dead_and_late_ranks_are_told() -> None:
    there = np.ones((3, 60), bool)
    there[1, 20:] = False
    summary = summary_of(job(takes_part=there, world_size=5))
    assert summary.missing == [3, 4]
    text = report_text(summary)
    assert "Ranks 3 and 4 of 5 took no step in what was recorded." in text
    assert "Rank 1 took part in 20 of 60 steps, from step 0 to 19." in text


def test_one_rank_of_a_job_alone() -> None:
    summary = summary_of(Job(np.ones((1, 30)), np.ones((1, 30)), world_size=2))
    assert (summary.steps.last == ALONE).all()
    assert report_text(summary).startswith("Only rank 0 was recorded")
    assert "Rank 1 of 2 took no step" in report_text(summary)


def test_clocks_that_cannot_tell_name_nobody() -> None:
    made = slow_input()
    made.errors = {"a": 0.0, "b": 30.0}
    summary = summary_of(made)
    assert (summary.stragglers, summary.decided, summary.undecided) == ([], 0, 59)
    text = report_text(summary)
    assert text.startswith("Too few steps to say who holds the others up: who was last")
    assert "Clocks of two hosts may be 30.0 ms apart at most." in text
    assert "In 59 steps the last came by less than that: no rank is named." in text
    made.errors = {"a": 0.0}
    assert "How far the clock of host b is off is not known" in report_text(summary_of(made))


def test_ranks_of_several_groups_are_not_compared() -> None:
    """Two times three ranks that average among themselves, some steps apart."""
    first, second = job().run(), job().run()
    second.syncs["rank"] += 3
    for column in ("start_ns", "ready_ns", "end_ns"):
        second.syncs[column] += 300 * MS
    first.syncs = pd.concat([first.syncs, second.syncs], ignore_index=True)
    summary = rank_summary(first)
    assert summary is not None
    assert (summary.stragglers, summary.decided) == ([], 0)
    assert report_text(summary).startswith(
        "Who holds the others up is not known: in most steps ranks had"
    )


def test_without_synchronisations_it_is_said_what_is_not_known() -> None:
    run = slow_input().run()
    run.syncs = run.syncs.iloc[:0]
    summary = rank_summary(run)
    assert summary is not None
    assert summary.stragglers == []
    [line] = rank_report.verdict(summary)
    assert line.startswith("Who arrived last is not known")
    assert "rank 2 waits longest, 11.5 ms a batch" in line
    assert math.isnan(summary.mean_ns)
    columns, rows, _ = rank_report.cells(summary, 16)
    assert "last" not in [name for name, _ in columns]
    assert [chart.id for chart in rank_charts.heat_maps(summary)] == ["ranks-wait", "ranks-step"]
    assert rows[0][0] == "2"


@pytest.mark.parametrize(
    ("manifest", "wanted"),
    [
        ({"cpu": {"logical": 8, "affinity": 4, "quota": 1.5, "model": "x"}}, (1.5, "x")),
        ({"host": "other", "cpu": {"logical": 8}}, (math.nan, "")),
        ({"host": "h", "cpu": {"logical": 8, "model": 3}}, (8, "")),
        ({"hosts": [{"host": "h", "cpu": {"affinity": 2, "model": "y"}}]}, (2, "y")),
        ({"ranks": [{"rank": 1, "host": "h", "cpu": {"affinity": 3}}], "host": "h",
          "cpu": {"affinity": 9, "model": "z"}}, (3, "z")),
        ({"ranks": [{"rank": 1, "host": "h", "cpu": {"affinity": 3}}],
          "hosts": [{"host": "h", "cpu": {"affinity": 8, "quota": 2.5, "model": "w"}}]},
         (2.5, "w")),
        ({"ranks": [{"rank": 1, "host": "h", "cpu": [1]}, 3], "hosts": ["x"]}, (math.nan, "")),
        ({"ranks": 7, "hosts": "text", "host": "h", "cpu": 3}, (math.nan, "")),
    ],
)  # fmt: skip
def test_cores_are_those_of_the_rank_else_of_its_host(
    manifest: dict[str, Any], wanted: tuple[float, str]
) -> None:
    cores, model = processor(manifest, 1, "h")
    assert (cores, model) == pytest.approx(wanted, nan_ok=True)


# -- written down ----------------------------------------------------------------------------------


def on_terminal(summary: RankSummary) -> str:
    file = io.StringIO()
    rank_report.write(Console(file=file, width=80, highlight=False, markup=False), summary)
    return file.getvalue()


def test_eighty_columns_hold_the_table_and_no_name_steers_the_terminal() -> None:
    made = slow_input()
    made.hosts = ["a" * 60, HOSTILE, HOSTILE]
    made.sample = {HOSTILE: [1.0, 1.0, 3.0]}
    made.errors = dict.fromkeys(made.hosts, 0.0)
    text = on_terminal(summary_of(made))
    assert max(map(len, text.splitlines())) <= 80
    assert not set(text) & set("\x1b\u202e")
    assert "\\x1b[31mhost" in text


def test_the_page_and_the_document_have_the_ranks() -> None:
    made = slow_input()
    made.hosts = ["a", "a", HOSTILE]
    made.errors = dict.fromkeys(made.hosts, 0.0)
    summary = summary_of(made)
    (section,) = rank_charts.sections(summary)
    charts = [part for part in section.parts if isinstance(part, Chart)]
    assert [chart.id for chart in charts] == [
        "ranks-late", "ranks-wait", "ranks-step", "ranks-sync",
    ]  # fmt: skip
    for chart in charts:
        go.Figure(chart.figure)  # raises ValueError for what plotly does not know
        assert "<" not in "".join(chart.figure["layout"]["yaxis"]["ticktext"])
    [shown] = [part for part in section.parts if isinstance(part, Table)]
    assert len(shown.rows) == 3
    document = run_document.ranks_document(summary)
    text = json.dumps(document, allow_nan=False)
    assert not set(text) & set("\x1b\u202e")
    assert document["stragglers"][0]["ranks"] == [2]
    assert len(document["steps"]) == 60
    assert document["table"][0]["rank"] == 0


def test_pictures_of_many_ranks_and_steps_are_bounded_and_say_so() -> None:
    rng = np.random.default_rng(0)
    own = 50 * MS * (1 + 0.1 * rng.random((1024, 1200)))
    own[700] *= 1.5
    ordered = np.sort(own, axis=0)
    late = (own - np.median(own, axis=0)).astype(np.float32)
    base = simulated(own[:2])
    steps = dataclasses.replace(
        base, ranks=np.arange(1024), hosts=["h"] * 1024, world_size=1024,
        wait=late, step=own.astype(np.float32), sync=late, late=late, last=own.argmax(axis=0),
        lead_second=ordered[-1] - ordered[-2], lead_median=ordered[-1],
        clock_error_ns=np.zeros(1024), size=np.full(1024, 4.0),
    )  # fmt: skip
    [(rows, share, host)] = named(steps)
    assert (rows.tolist(), share.times, host) == ([700], 1200, None)
    summary = RankSummary(
        steps=steps,
        table=pd.DataFrame(
            {name: np.zeros(1024) for name in ("late_ns", "wait_ns", "step_ns", "sync_ns")}
        ),
        over=pd.DataFrame(), stragglers=[], nearest=None, missing=[], decided=1200, undecided=0,
        mean_ns=1.0,
    )  # fmt: skip
    for chart in rank_charts.heat_maps(summary):
        ranks_drawn, steps_drawn = map(int, chart.figure["data"][0]["z"]["shape"].split(", "))
        assert ranks_drawn <= 200
        assert steps_drawn <= 500
        assert "mean of 3 steps, the largest of 6 neighbouring ranks" in chart.note
    # One rank of so many is no outlier that is cut off: its 25 ms have a colour of their own.
    [late, *_] = rank_charts.heat_maps(summary)
    assert late.figure["data"][0]["zmax"] > 20
