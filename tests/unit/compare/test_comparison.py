"""Two sides held against each other: what is found, what is not claimed, and bad input."""

import json
import os
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.summary import summarise
from lotus.common.errors import LotusError
from lotus.compare import gate as compare_gate
from lotus.compare.comparison import Comparison
from lotus.compare.differences import run_facts
from lotus.reporters.compare import comparison_report as reporter
from tests.unit.sides import held, recorded, shown
from tests.unit.simulated import MS


def test_a_slower_operation_is_found_with_the_truth_in_its_interval() -> None:
    comparison = held(recorded(1), recorded(2, 1.3))
    line = comparison.line("operation:Loader")
    assert line is not None
    assert line.different
    assert line.difference.low < 0.30 < line.difference.high
    repeated = held([recorded(s) for s in (1, 3, 4)], [recorded(s, 1.3) for s in (2, 5, 6)])
    sure = repeated.line("operation:Loader")
    assert sure is not None
    assert sure.difference.low < 0.30 < sure.difference.high
    assert sure.difference.high - sure.difference.low < 0.1
    other = comparison.line("operation:Normalize")
    assert other is not None
    assert not other.different
    assert comparison.verdict.kind == "slower"
    assert re.fullmatch(
        r"In these two runs B was 0\.\d\d times as fast as A \(0\.\d\d to 0\.\d\d\)",
        comparison.verdict.text,
    )


def test_values_are_those_of_the_report() -> None:
    run = recorded(3)
    run.ops = run.ops.assign(cpu_ns=run.ops["duration_ns"] // 2)
    comparison = held(run, recorded(4))
    report = summarise(run).loaders[0]
    values = {line.id: line.a for line in comparison.loaders[0].lines}
    samples = report.times["samples"]
    assert values["throughput"] == pytest.approx(report.times["samples_per_s"])
    assert values["wait"] == pytest.approx(report.times["wait_ns"] / samples)
    assert values["step"] == pytest.approx(report.times["step_ns"] / samples)
    assert values["startup"] == pytest.approx(report.times["startup_mean_ns"])
    assert values["wait_share"] == pytest.approx(report.ranks["wait_share"][0])
    # Its name says that it is more than the waits of the report's verdict.
    labels = {line.id: line.label for line in comparison.loaders[0].lines}
    assert labels["wait_share"] == "waiting, start-up, shut-down"
    judged = report.verdict
    parts = judged.input_share + judged.startup_share + judged.shutdown_share
    assert values["wait_share"] == pytest.approx(parts)
    assert values["wait:making"] == pytest.approx(report.phases["making"] / samples)
    for row in report.operations.to_dict("records"):
        assert values[f"operation:{row['operation']}"] == pytest.approx(row["total_ns"] / samples)
    parts = report.other_time.set_index("part")["total_ns"] / samples
    assert values["collate"] == pytest.approx(parts["collate"])
    assert values["own"] == pytest.approx(parts["own code"])
    elapsed = comparison.line("elapsed")
    assert elapsed is not None
    assert elapsed.a == run.manifest["end_ns"] - run.manifest["start_ns"]


def test_the_same_recording_has_exactly_no_difference() -> None:
    run = recorded(1)
    comparison = held(run, run)
    assert comparison.verdict.kind == "same run"
    assert {line.difference.difference for line in comparison.loaders[0].lines} == {0.0}
    assert not any(line.different for line in comparison.loaders[0].lines)
    assert not compare_gate.judge([comparison], "throughput", 0.0).failed


def test_equal_programs_show_no_difference() -> None:
    kinds = [held(recorded(seed), recorded(seed + 100)).verdict.kind for seed in range(6)]
    assert kinds.count("no difference") >= 5
    assert "no difference seen: " in held(recorded(0), recorded(100)).verdict.text


def test_one_run_a_side_is_said_to_know_nothing_of_other_runs() -> None:
    assert "each side has one run" in shown(held(recorded(1), recorded(2)))
    several = held([recorded(1), recorded(2)], [recorded(3, 1.3), recorded(4, 1.3)])
    assert "each side has one run" not in shown(several)


def test_repeats_speak_of_the_programs() -> None:
    comparison = held([recorded(s) for s in (1, 2, 3)], [recorded(s, 1.5) for s in (4, 5, 6)])
    assert re.match(
        r"B is 0\.\d\d times as fast as A \(0\.\d\d to 0\.\d\d\)", comparison.verdict.text
    )
    gates = [compare_gate.judge([compared], "throughput", 0.01) for compared in (
        comparison, held(recorded(1), recorded(4, 1.5))
    )]  # fmt: skip
    assert [gate.failed for gate in gates] == [True, True]
    assert ["Each side has one run" in " ".join(gate.texts) for gate in gates] == [False, True]


def test_repeats_that_differ_widen_the_interval() -> None:
    alike = held([recorded(s) for s in (1, 2, 3)], [recorded(s) for s in (4, 5, 6)])
    apart = held(
        [recorded(s, k) for s, k in ((1, 1.0), (2, 1.4), (3, 0.8))],
        [recorded(s, k) for s, k in ((4, 1.1), (5, 0.7), (6, 1.5))],
    )

    def width(comparison: Comparison) -> float:
        line = comparison.line("operation:Loader")
        assert line is not None
        return line.difference.high - line.difference.low

    assert width(apart) > 5 * width(alike)
    memory = recorded(1)
    memory.resources = pd.DataFrame(
        {"rank": 0, "pid": [1, 2, 1], "worker": -1, "time_ns": [0, 1, 10**10], "pss": [5, 7, 9]}
    )
    line = held([memory, memory], [memory, recorded(2)]).line("memory")
    assert line is None  # one run has none
    memory.resources = memory.resources.assign(pss=0)
    assert held([memory], [memory]).line("memory") is None  # 0: it was not read
    memory.resources = memory.resources.assign(pss=[5, 7, 9])
    line = held([memory], [memory]).line("memory")
    assert line is not None
    assert (line.a, line.difference.has_interval) == (12, False)


def test_machines_and_versions_come_first() -> None:
    a, b = recorded(1), recorded(2, workers=3, batch_size=8)
    b.manifest |= {
        "host": "two",
        "cpu": {"model": "other", "logical": 4, "affinity": 4},
        "level": "op+cpu",
    }
    b.processes = pd.DataFrame({"python": ["3.12"], "torch": ["2.9"]})
    a.processes = pd.DataFrame({"python": ["3.11"], "torch": [None]})
    comparison = held(a, b)
    facts = {
        fact.what: (fact.a, fact.b) for fact in [*comparison.facts, *comparison.loaders[0].facts]
    }
    assert facts["host"] == (["one"], ["two"])
    assert facts["CPU"] == (["simulated"], ["other"])
    assert facts["python"] == (["3.11"], ["3.12"])
    assert facts["torch"] == ([None], ["2.9"])
    assert facts["num workers"] == ([2], [3])
    assert facts["batch size"] == ([4], [8])
    assert facts["level"] == (["op"], ["op+cpu"])
    assert comparison.other_machine
    text = shown(comparison)
    assert text.index("What differs") < text.index("On another machine, in these two runs B was")
    assert "the machine is part of each difference" in " ".join(text.split())


def test_operations_of_one_side_are_listed_and_moved_ones_are_matched() -> None:
    a = recorded(1)
    b = recorded(2)
    b.ops["operation"] = b.ops["operation"].cat.rename_categories({"Normalize": "Scale"})
    b.ops["parent"] = pd.Categorical(["Compose"] * len(b.ops))
    loader = held(a, b).loaders[0]
    assert loader.removed["operation"].tolist() == ["Normalize"]
    assert loader.added["operation"].tolist() == ["Scale"]
    assert loader.added["ns"][0] == pytest.approx(0.5e6, rel=0.05)
    assert loader.line("operation:Loader") is not None
    text = " ".join(shown(held(a, b)).split())
    assert "Only in A: Normalize (" in text
    assert "Only in B: Scale (" in text


def two_loaders(seed: int, swapped: bool = False) -> SimpleNamespace:
    large, small = recorded(seed), recorded(seed + 50, batches=10, loader=1)
    for name in ("ops", "samples", "batches", "waits", "workers", "epochs", "loaders"):
        parts = [getattr(large, name), getattr(small, name)]
        setattr(large, name, pd.concat(parts, ignore_index=True))
    large.loaders["dataset"] = ["Train", "Test"]
    large.loaders["call_site"] = ["train.py:31", f"train.py:{60 + seed}"]
    if swapped:
        for name in ("ops", "samples", "batches", "waits", "workers", "epochs", "loaders"):
            table = getattr(large, name)
            if "loader" in table:
                table["loader"] = 1 - table["loader"]
    return large


def test_loaders_are_matched_by_what_they_are() -> None:
    comparison = held(two_loaders(1), two_loaders(2, swapped=True))
    assert [loader.numbers for loader in comparison.loaders] == [(0, 1), (1, 0)]
    assert comparison.unmatched == []
    lone = two_loaders(1)
    lone.loaders.loc[1, ["dataset", "sampler", "call_site"]] = ["Other", "Own", "x.py:1"]
    comparison = held(two_loaders(3), lone)
    assert len(comparison.loaders) == 1
    assert [only.side for only in comparison.unmatched] == ["a", "b"]
    assert "Only B has the loader Other at x.py:1" in " ".join(shown(comparison).split())


def test_the_first_epochs_are_compared_where_one_side_has_more() -> None:
    comparison = held(recorded(1, epochs=1), recorded(2, epochs=3))
    assert "1 to 3 epochs: only the first epoch is compared" in " ".join(shown(comparison).split())
    throughput = comparison.line("throughput")
    assert throughput is not None
    per_second = summarise(recorded(2, epochs=1)).loaders[0].times["samples_per_s"]
    assert throughput.b == pytest.approx(per_second, rel=0.05)


def test_start_up_of_one_epoch_has_no_interval_and_of_several_it_has() -> None:
    for epochs, known in ((1, False), (4, True)):
        line = held(recorded(1, epochs=epochs), recorded(2, epochs=epochs)).line("startup")
        assert line is not None
        assert line.difference.has_interval == known


def counted(seed: int, ipc: float) -> SimpleNamespace:
    run = recorded(seed)
    generator = np.random.default_rng(seed)
    ops = run.ops[["rank", "pid", "loader", "epoch", "batch", "operation", "duration_ns"]]
    ops = ops.assign(kind="operation", nested=False, tid=ops["pid"], enabled_ns=1, running_ns=1)
    ops["cycles"] = 3.0 * ops["duration_ns"]
    ops["instructions"] = ops["cycles"] * ipc * generator.normal(1, 0.05, len(ops))
    fetch = ops.groupby(["rank", "pid", "loader", "epoch", "batch"], as_index=False)[
        ["duration_ns", "cycles", "instructions"]
    ].sum()
    fetch = fetch.assign(kind="fetch", operation="", nested=False, tid=fetch["pid"],
                         enabled_ns=1, running_ns=1)  # fmt: skip
    fetch["cycles"] += 1000.0
    run.counters = pd.concat([ops.astype({"operation": str}), fetch], ignore_index=True)
    return run


def test_what_was_counted_is_named_as_perf_names_it() -> None:
    first, other = recorded(1), recorded(1)
    first.manifest["counters"] = "task_clock|1|0x1|0x0|u;context_switches|1|0x3|0x0|uk"
    (fact,) = [fact for fact in run_facts([first], [other]) if fact.what == "counters"]
    assert (fact.a, fact.b) == (["task_clock:u, context_switches:uk"], [None])


def test_counters_and_their_metrics_have_intervals() -> None:
    comparison = held(counted(1, 2.0), counted(2, 1.5))
    ipc = comparison.line("counter:Loader:ipc")
    assert ipc is not None
    assert ipc.a == pytest.approx(2.0, rel=0.02)
    assert ipc.different
    assert ipc.difference.low < -0.25 < ipc.difference.high
    cycles = comparison.line("counter:Loader:cycles")
    assert cycles is not None
    assert cycles.a == pytest.approx(6e6, rel=0.05)
    rest = comparison.line("counter:(own code, rest of fetch):cycles")
    assert rest is not None
    assert rest.a == pytest.approx(1000 / 4)
    only = held(counted(1, 2.0), recorded(2))
    assert "only A was recorded with --counters" in shown(only)


# ── bad input ────────────────────────────────────────────────────────────────────────────────


def test_a_side_without_batches_is_not_comparable() -> None:
    empty = recorded(2)
    for name in ("ops", "samples", "batches", "waits", "epochs", "workers", "loaders"):
        setattr(empty, name, getattr(empty, name).iloc[:0])
    comparison = held(recorded(1), empty)
    assert comparison.verdict.kind == "not comparable"
    assert "no batch was taken from a DataLoader in B (run-2)" in shown(comparison)
    with pytest.raises(LotusError, match="cannot be judged"):
        compare_gate.judge([comparison], "throughput", 0.05)


@pytest.mark.parametrize("batches", [1, 2])
def test_hardly_any_batches_give_no_interval_and_no_judgement(batches: int) -> None:
    comparison = held(
        recorded(1, batches=batches, epochs=1), recorded(2, batches=batches, epochs=1)
    )
    assert comparison.verdict.kind == "unknown"
    assert "too few batches" in shown(comparison)
    assert comparison.verdict.text.startswith("cannot tell: B looks ")
    with pytest.raises(LotusError, match="no interval"):
        compare_gate.judge([comparison], "throughput", 0.05)


def slow_steps(seed: int, scale: float, batches: int = 24) -> SimpleNamespace:
    """A run whose steps take 1 ms, but one in four `scale` times 400."""
    run = recorded(seed, batches=batches, epochs=2, workers=0)
    generator = np.random.default_rng(seed)
    step = np.where(generator.random(len(run.waits)) < 0.25, 400 * scale, 1.0) * MS
    run.waits = run.waits.assign(step_ns=step)
    run.batches = run.batches.assign(step_ns=step)
    return run


def test_an_interval_that_is_too_wide_to_judge_is_said_to_be() -> None:
    comparison = held(slow_steps(1, 0.6), slow_steps(2, 1.0))
    line = comparison.line("throughput")
    assert line is not None
    assert line.difference.low < -0.3 < 0 < line.difference.high
    assert comparison.verdict.kind == "unknown"
    wanted = (
        r"cannot tell: B looks \d\.\d times slower than A, but the interval, .* times slower to "
    )
    assert re.match(wanted + r".* faster, is too wide to judge; record three runs of each:", (
        comparison.verdict.text
    ))  # fmt: skip
    text = shown(comparison)
    assert "no difference" not in text.lower()
    row = next(row for row in text.splitlines() if row.startswith("  throughput"))
    assert row.endswith("unclear")
    gate = compare_gate.judge([comparison], "throughput", 0.05)
    assert "too wide to tell a difference from none" in " ".join(gate.texts)


def test_the_lines_to_type_are_those_of_the_runs() -> None:
    a, b = slow_steps(1, 0.6), slow_steps(2, 1.0)
    a.manifest |= {"command": ["python", "train.py", "--lr", "1"], "cwd": os.getcwd()}
    b.manifest |= {
        "command": ["python", "my train.py"], "cwd": "/elsewhere", "level": "op+cpu", "every": 2,
    }  # fmt: skip
    commands = held(a, b).verdict.commands
    assert commands == (
        "for i in 1 2 3; do",
        "  lotus trace -q -o compare-a/$i -- python train.py --lr 1",
        "  lotus trace -q -o compare-b/$i --level op+cpu --every 2 -- "
        "env -C /elsewhere python 'my train.py'",
        "done",
        "lotus compare compare-a compare-b",
    )
    assert shown(held(a, b)).count("\n".join(f"  {line}" for line in commands)) == 1
    for name in ("command", "cwd", "level", "every"):
        b.manifest[name] = a.manifest[name]
    assert held(a, b).verdict.commands[2].endswith("python train.py --lr 1   # as B was")
    b.manifest["command"] = ["python", "train.py", "--token", "***"]
    assert held(a, b).verdict.commands == ()  # a hidden secret cannot be typed
    several = held([a, a, a], [b, slow_steps(3, 0.2), slow_steps(4, 2.0)])
    assert several.verdict.text.endswith("record 6 runs of each")


def test_zero_durations_and_lost_records_are_borne() -> None:
    a, b = recorded(1), recorded(2)
    for name in ("waits", "batches", "ops", "samples", "epochs"):
        table = getattr(b, name)
        for column in table.columns:
            if column.endswith("_ns") and not column.endswith(("start_ns", "end_ns")):
                table[column] = 0
    b.epochs["end_ns"] = b.epochs["start_ns"]
    b.lost = pd.DataFrame({"what": ["x"], "pid": [1], "count": [7], "bytes": [0]})
    comparison = held(a, b)
    assert comparison.verdict.kind == "not comparable"
    assert "lost 7 records" in shown(comparison)
    b.lost["what"] = "send times of a batch"  # no other figure lacks anything
    shown_slight = " ".join(shown(held(a, b)).split())
    assert "when 7 batches had been sent is not known" in shown_slight
    assert "lost 7 records" not in shown_slight
    json.loads(json.dumps(reporter.document([comparison])), parse_constant=pytest.fail)


def test_nothing_is_better_or_worse_between_programs_on_other_data() -> None:
    a, b = recorded(1), recorded(2, 1.3)
    for run, name in ((a, "pictures"), (b, "words")):
        run.manifest["command"] = ["python", f"{name}.py"]
    assert held(a, b).verdict.kind == "slower"  # two versions of a program
    b.loaders["dataset"] = "Words"
    comparison = held(a, b)
    assert comparison.verdict.kind == "not comparable"
    text = shown(comparison)
    assert "A and B run different commands; their speeds are not comparable" in text
    assert not any(line.different for line in comparison.loaders[0].lines)
    assert "worse" not in text
    b.manifest["command"] = a.manifest["command"]
    assert held(a, b).verdict.kind == "slower"


def test_levels_that_differ_are_told() -> None:
    a, b = recorded(1), recorded(2)
    b.ops, b.samples = b.ops.iloc[:0], b.samples.iloc[:0]
    b.manifest["level"] = "batch"
    comparison = held(a, b)
    assert "no operations were recorded in B: see its --level" in shown(comparison)
    b.manifest["level"] = "op"
    without = " ".join(shown(held(a, b)).split())
    assert "the data set of B has no operations that lotus records" in without
    assert "--level" not in without
    assert comparison.line("throughput") is not None
    assert comparison.line("operation:Loader") is None


def test_operations_without_number() -> None:
    runs = []
    for seed in (1, 2):
        run = recorded(seed, batches=30, epochs=1)
        many = pd.DataFrame(run.ops.iloc[np.zeros(20_000, int)]).reset_index(drop=True)
        many["operation"] = [f"Kind{place}" for place in range(20_000)]
        many["parent"] = ""
        many["duration_ns"] = 10
        run.ops = pd.concat([run.ops.astype({"operation": str, "parent": str}), many])
        run.ops = run.ops.reset_index(drop=True).astype({"operation": "category"})
        runs.append(run)
    comparison = held(*runs)
    assert len(comparison.loaders[0].others) == 20_002 - 200
    assert "more: see --json" in shown(comparison)
    assert len(shown(comparison).splitlines()) < 200
    document = json.loads(json.dumps(reporter.document([comparison])))
    assert len(document["comparisons"][0]["loaders"][0]["other_operations"]) == 19_802
    kept = reporter.document([comparison], most=1000)["comparisons"][0]["loaders"][0]
    assert len(kept["other_operations"]) == 1000


def test_ranks_are_added_up_and_the_slowest_sets_the_pace() -> None:
    def job(seed: int) -> SimpleNamespace:
        run, other = recorded(seed), recorded(seed + 20, 2.0, rank=1)
        for name in ("ops", "samples", "batches", "waits", "workers", "epochs", "loaders"):
            parts = [getattr(run, name), getattr(other, name)]
            setattr(run, name, pd.concat(parts, ignore_index=True))
        return run

    a = job(1)
    comparison = held(a, job(2))
    line = comparison.line("throughput")
    assert line is not None
    assert line.a == pytest.approx(summarise(a).loaders[0].times["samples_per_s"])
    assert line.difference.has_interval
