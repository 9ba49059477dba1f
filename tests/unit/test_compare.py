"""Two sides held against each other: what is found, what is not claimed, and bad input."""

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lotus import cli, comparing, sweep
from lotus.analysis import compare_gate
from lotus.analysis.compare import Comparison, Side, compare
from lotus.analysis.summary import summarise
from lotus.errors import LotusError
from lotus.reporters import compare as reporter
from lotus.reporters import compare_page
from lotus.tune.space import Setting
from tests.unit.simulated import Plan

HOSTILE = "\x1b[31mred\x1b]0;title\x07\n\r\u202e[bold]<script>"
MACHINE = {"host": "one", "boot_id": "x", "memory_bytes": 8 << 30, "kernel": "6.1"}
_made = iter(range(10**6))


def recorded(seed: int, scale: float = 1.0, **changed: Any) -> SimpleNamespace:
    """A run whose Loader takes `scale` times 2 ms, with noise of its own."""
    generator = np.random.default_rng(seed)
    operations = {
        "Loader": lambda sample, worker: scale * generator.normal(2, 0.3),
        "Normalize": lambda sample, worker: generator.normal(0.5, 0.05),
    }
    settings = {"operations": operations, "batches": 60, "epochs": 2, **changed}
    run = Plan(**settings).run()
    run.manifest |= {**MACHINE, "start_wall_ns": next(_made)}
    run.path = f"run-{seed}"
    return run


def held(a: Any, b: Any) -> Comparison:
    sides = [one if isinstance(one, list) else [one] for one in (a, b)]
    return compare(Side("before", sides[0], "A"), Side("after", sides[1], "B"))


def shown(*found: Comparison) -> str:
    file = io.StringIO()
    reporter.write(found, file)
    return file.getvalue()


def test_a_slower_operation_is_found_with_the_truth_in_its_interval() -> None:
    found = held(recorded(1), recorded(2, 1.3))
    line = found.line("operation:Loader")
    assert line is not None
    assert line.different
    assert line.difference.low < 0.30 < line.difference.high
    assert line.difference.high - line.difference.low < 0.1
    other = found.line("operation:Normalize")
    assert other is not None
    assert not other.different
    assert found.verdict.kind == "slower"
    assert re.fullmatch(
        r"In these two runs B was 0\.\d\d times as fast as A \(0\.\d\d to 0\.\d\d\)",
        found.verdict.text,
    )


def test_values_are_those_of_the_report() -> None:
    run = recorded(3)
    run.ops = run.ops.assign(cpu_ns=run.ops["duration_ns"] // 2)
    found = held(run, recorded(4))
    report = summarise(run).loaders[0]
    values = {line.id: line.a for line in found.loaders[0].lines}
    samples = report.times["samples"]
    assert values["throughput"] == pytest.approx(report.times["samples_per_s"])
    assert values["wait"] == pytest.approx(report.times["wait_ns"] / samples)
    assert values["step"] == pytest.approx(report.times["step_ns"] / samples)
    assert values["startup"] == pytest.approx(report.times["startup_mean_ns"])
    assert values["wait_share"] == pytest.approx(report.ranks["wait_share"][0])
    assert values["wait:making"] == pytest.approx(report.phases["making"] / samples)
    for row in report.operations.to_dict("records"):
        assert values[f"operation:{row['operation']}"] == pytest.approx(row["total_ns"] / samples)
    parts = report.other_time.set_index("part")["total_ns"] / samples
    assert values["collate"] == pytest.approx(parts["collate"])
    assert values["own"] == pytest.approx(parts["own code"])
    elapsed = found.line("elapsed")
    assert elapsed is not None
    assert elapsed.a == run.manifest["end_ns"] - run.manifest["start_ns"]


def test_the_same_recording_has_exactly_no_difference() -> None:
    run = recorded(1)
    found = held(run, run)
    assert found.verdict.kind == "same run"
    assert {line.difference.difference for line in found.loaders[0].lines} == {0.0}
    assert not any(line.different for line in found.loaders[0].lines)
    assert not compare_gate.judge([found], "throughput", 0.0).failed


def test_equal_programs_show_no_difference() -> None:
    kinds = [held(recorded(seed), recorded(seed + 100)).verdict.kind for seed in range(6)]
    assert kinds.count("no difference") >= 5
    assert "no difference seen: " in held(recorded(0), recorded(100)).verdict.text


def test_one_run_a_side_is_said_to_know_nothing_of_other_runs() -> None:
    assert "one run a side" in shown(held(recorded(1), recorded(2)))
    several = held([recorded(1), recorded(2)], [recorded(3, 1.3), recorded(4, 1.3)])
    assert "one run a side" not in shown(several)


def test_repeats_speak_of_the_programs() -> None:
    found = held([recorded(s) for s in (1, 2, 3)], [recorded(s, 1.5) for s in (4, 5, 6)])
    assert re.match(r"B is 0\.\d\d times as fast as A \(0\.\d\d to 0\.\d\d\)", found.verdict.text)
    gates = [compare_gate.judge([one], "throughput", 0.01) for one in (
        found, held(recorded(1), recorded(4, 1.5))
    )]  # fmt: skip
    assert [gate.failed for gate in gates] == [True, True]
    assert ["one run a side" in " ".join(gate.texts) for gate in gates] == [False, True]


def test_repeats_that_differ_widen_the_interval() -> None:
    alike = held([recorded(s) for s in (1, 2, 3)], [recorded(s) for s in (4, 5, 6)])
    apart = held(
        [recorded(s, k) for s, k in ((1, 1.0), (2, 1.4), (3, 0.8))],
        [recorded(s, k) for s, k in ((4, 1.1), (5, 0.7), (6, 1.5))],
    )

    def width(found: Comparison) -> float:
        line = found.line("operation:Loader")
        assert line is not None
        return line.difference.high - line.difference.low

    assert width(apart) > 5 * width(alike)
    memory = recorded(1)
    memory.resources = pd.DataFrame(
        {"rank": 0, "pid": [1, 2, 1], "worker": -1, "time_ns": [0, 1, 10**10], "pss": [5, 7, 9]}
    )
    line = held([memory, memory], [memory, recorded(2)]).line("memory")
    assert line is None  # one run has none
    line = held([memory], [memory]).line("memory")
    assert line is not None
    assert (line.a, line.difference.known) == (12, False)


def test_machines_and_versions_come_first() -> None:
    a, b = recorded(1), recorded(2, workers=3, batch_size=8)
    b.manifest |= {
        "host": "two",
        "cpu": {"model": "other", "logical": 4, "affinity": 4},
        "level": "op+cpu",
    }
    b.processes = pd.DataFrame({"python": ["3.12"], "torch": ["2.9"]})
    a.processes = pd.DataFrame({"python": ["3.11"], "torch": [None]})
    found = held(a, b)
    facts = {fact.what: (fact.a, fact.b) for fact in [*found.facts, *found.loaders[0].facts]}
    assert facts["host"] == (["one"], ["two"])
    assert facts["CPU"] == (["simulated"], ["other"])
    assert facts["python"] == (["3.11"], ["3.12"])
    assert facts["torch"] == ([None], ["2.9"])
    assert facts["num workers"] == ([2], [3])
    assert facts["batch size"] == ([4], [8])
    assert facts["level"] == (["op"], ["op+cpu"])
    assert found.other_machine
    text = shown(found)
    assert text.index("What differs") < text.index("On another machine, in these two runs B was")
    assert "the machine is part of each difference" in " ".join(text.split())


def test_operations_of_one_side_are_listed_and_moved_ones_are_matched() -> None:
    a = recorded(1)
    b = recorded(2)
    b.ops["operation"] = b.ops["operation"].cat.rename_categories({"Normalize": "Scale"})
    b.ops["parent"] = pd.Categorical(["Compose"] * len(b.ops))
    found = held(a, b).loaders[0]
    assert found.removed["operation"].tolist() == ["Normalize"]
    assert found.added["operation"].tolist() == ["Scale"]
    assert found.added["ns"][0] == pytest.approx(0.5e6, rel=0.05)
    assert found.line("operation:Loader") is not None
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
    found = held(two_loaders(1), two_loaders(2, swapped=True))
    assert [one.numbers for one in found.loaders] == [(0, 1), (1, 0)]
    assert found.unmatched == []
    lone = two_loaders(1)
    lone.loaders.loc[1, ["dataset", "sampler", "call_site"]] = ["Other", "Own", "x.py:1"]
    found = held(two_loaders(3), lone)
    assert len(found.loaders) == 1
    assert [side for side, _ in found.unmatched] == ["a", "b"]
    assert "Only B has the loader Other at x.py:1" in " ".join(shown(found).split())


def test_the_first_epochs_are_compared_where_one_side_has_more() -> None:
    found = held(recorded(1, epochs=1), recorded(2, epochs=3))
    assert "1 to 3 epochs: the first epoch is compared" in " ".join(shown(found).split())
    throughput = found.line("throughput")
    assert throughput is not None
    one = summarise(recorded(2, epochs=1)).loaders[0].times["samples_per_s"]
    assert throughput.b == pytest.approx(one, rel=0.05)


def test_start_up_of_one_epoch_has_no_interval_and_of_several_it_has() -> None:
    for epochs, known in ((1, False), (4, True)):
        line = held(recorded(1, epochs=epochs), recorded(2, epochs=epochs)).line("startup")
        assert line is not None
        assert line.difference.known == known


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


def test_counters_and_their_metrics_have_intervals() -> None:
    found = held(counted(1, 2.0), counted(2, 1.5))
    ipc = found.line("counter:Loader:ipc")
    assert ipc is not None
    assert ipc.a == pytest.approx(2.0, rel=0.02)
    assert ipc.different
    assert ipc.difference.low < -0.25 < ipc.difference.high
    cycles = found.line("counter:Loader:cycles")
    assert cycles is not None
    assert cycles.a == pytest.approx(6e6, rel=0.05)
    rest = found.line("counter:(rest of the fetch):cycles")
    assert rest is not None
    assert rest.a == pytest.approx(1000 / 4)
    only = held(counted(1, 2.0), recorded(2))
    assert "only A was recorded with --counters" in shown(only)


# ── bad input ────────────────────────────────────────────────────────────────────────────────


def test_a_side_without_batches_is_not_comparable() -> None:
    empty = recorded(2)
    for name in ("ops", "samples", "batches", "waits", "epochs", "workers", "loaders"):
        setattr(empty, name, getattr(empty, name).iloc[:0])
    found = held(recorded(1), empty)
    assert found.verdict.kind == "not comparable"
    assert "no batch was taken from a DataLoader in B (run-2)" in shown(found)
    with pytest.raises(LotusError, match="cannot be judged"):
        compare_gate.judge([found], "throughput", 0.05)


@pytest.mark.parametrize("batches", [1, 2])
def test_hardly_any_batches_give_no_interval_and_no_judgement(batches: int) -> None:
    found = held(recorded(1, batches=batches, epochs=1), recorded(2, batches=batches, epochs=1))
    assert found.verdict.kind == "unknown"
    assert "too few batches" in shown(found)
    with pytest.raises(LotusError, match="no interval"):
        compare_gate.judge([found], "throughput", 0.05)


def test_zero_durations_and_lost_records_are_borne() -> None:
    a, b = recorded(1), recorded(2)
    for name in ("waits", "batches", "ops", "samples", "epochs"):
        table = getattr(b, name)
        for column in table.columns:
            if column.endswith("_ns") and not column.endswith(("start_ns", "end_ns")):
                table[column] = 0
    b.epochs["end_ns"] = b.epochs["start_ns"]
    b.lost = pd.DataFrame({"what": ["x"], "pid": [1], "count": [7], "bytes": [0]})
    found = held(a, b)
    assert found.verdict.kind == "not comparable"
    assert "lost 7 records" in shown(found)
    json.loads(reporter.text([found]), parse_constant=pytest.fail)


def test_levels_that_differ_are_told() -> None:
    a, b = recorded(1), recorded(2)
    b.ops, b.samples = b.ops.iloc[:0], b.samples.iloc[:0]
    found = held(a, b)
    assert "no operations were recorded in B" in shown(found)
    assert found.line("throughput") is not None
    assert found.line("operation:Loader") is None


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
    found = held(*runs)
    assert len(found.loaders[0].others) == 20_002 - 200
    assert "more: see --json" in shown(found)
    assert len(shown(found).splitlines()) < 200
    document = json.loads(reporter.text([found]))
    assert len(document["comparisons"][0]["loaders"][0]["other_operations"]) == 19_802
    kept = reporter.document([found], most=1000)["comparisons"][0]["loaders"][0]
    assert len(kept["other_operations"]) == 1000


def test_ranks_are_added_up_and_the_slowest_sets_the_pace() -> None:
    def job(seed: int) -> SimpleNamespace:
        run, other = recorded(seed), recorded(seed + 20, 2.0, rank=1)
        for name in ("ops", "samples", "batches", "waits", "workers", "epochs", "loaders"):
            parts = [getattr(run, name), getattr(other, name)]
            setattr(run, name, pd.concat(parts, ignore_index=True))
        return run

    a = job(1)
    found = held(a, job(2))
    line = found.line("throughput")
    assert line is not None
    assert line.a == pytest.approx(summarise(a).loaders[0].times["samples_per_s"])
    assert line.difference.known


# ── what is shown ────────────────────────────────────────────────────────────────────────────


def hostile() -> Comparison:
    runs = []
    for seed in (1, 2):
        run = recorded(seed, operations={HOSTILE: 2.0}, batches=20)
        run.manifest |= {"command": ["python", HOSTILE, str(seed)], "host": HOSTILE + str(seed)}
        run.loaders["dataset"] = HOSTILE
        run.loaders["call_site"] = HOSTILE
        runs.append(run)
    return compare(Side(HOSTILE, runs[:1], "A"), Side("after", runs[1:], "B"))


def test_names_of_a_trace_cannot_steer_the_terminal() -> None:
    for text in (shown(hostile()), reporter.text([hostile()])):
        assert not set(text) & set("\x1b\x07\r\u202e")
        text.encode()


def test_eighty_columns_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = held([recorded(1), recorded(2)], [recorded(3, 1.3), recorded(4, 1.3)])
    lines = shown(found).splitlines()
    assert max(map(len, lines)) <= 80


def test_the_document_has_what_is_shown() -> None:
    found = held(recorded(1), recorded(2, 1.3))
    document = json.loads(reporter.text([found]), parse_constant=pytest.fail)
    assert document["schema"] == 1
    first = document["comparisons"][0]
    assert first["verdict"]["text"] in shown(found)
    lines = {line["id"]: line for line in first["loaders"][0]["lines"]}
    line = found.line("operation:Loader")
    assert line is not None
    assert lines["operation:Loader"]["low"] == line.difference.low
    assert lines["operation:Loader"]["different"] is True
    assert len(lines) == len(found.loaders[0].lines)


def test_the_page_has_intervals_and_throughput(tmp_path: Path) -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")
    found = held(recorded(1), recorded(2, 1.3))
    compare_page.write(tmp_path / "c.html", [found, hostile()])
    text = (tmp_path / "c.html").read_text()
    match = re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)
    assert match is not None
    figures = json.loads(match[1])
    assert set(figures) >= {"differences-0-0", "throughput-0-0", "differences-1-0"}
    for figure in figures.values():
        graph_objects.Figure(figure)
    points = {
        label: (x, low, high)
        for trace in figures["differences-0-0"]["data"]
        for label, x, low, high in zip(
            trace["y"], trace["x"], trace["error_x"]["arrayminus"], trace["error_x"]["array"],
            strict=True,
        )
    }  # fmt: skip
    line = found.line("operation:Loader")
    assert line is not None
    label = next(label for label in points if "Loader (operations)" in label)
    x, low, high = points[label]
    assert x == pytest.approx(100 * line.difference.difference, rel=1e-5)
    assert x - low == pytest.approx(100 * line.difference.low, rel=1e-4)
    assert x + high == pytest.approx(100 * line.difference.high, rel=1e-4)
    paces = {trace["name"]: trace for trace in figures["throughput-0-0"]["data"]}
    assert set(paces) == {"A", "B"}
    assert len(paces["A"]["x"]) == 30
    assert "<script>title" not in text.replace("\\u003c", "")
    assert found.verdict.text in text


# ── the gate and the command line ────────────────────────────────────────────────────────────


def test_the_gate_fails_only_where_all_of_the_interval_is_above() -> None:
    slower = held(recorded(1), recorded(2, 1.3))
    line = slower.line("throughput")
    assert line is not None
    worse, low, high = line.slowdown
    assert low < worse < high
    assert worse == pytest.approx(1 - line.b / line.a)
    for above, failed in ((low - 0.01, True), (low + 0.001, False), (high + 0.1, False)):
        gate = compare_gate.judge([slower], "throughput", above)
        assert gate.failed == failed
        assert ("Failed" in gate.texts[0]) == failed
    faster = held(recorded(2, 1.3), recorded(1))
    assert not compare_gate.judge([faster], "throughput", 0.0).failed
    assert compare_gate.judge([faster, slower], "throughput", 0.05).failed
    assert compare_gate.judge([slower], "operation:Loader", 0.2).failed
    assert not compare_gate.judge([slower], "operation:Normalize", 0.05).failed
    with pytest.raises(LotusError, match="operation:Loader"):
        compare_gate.judge([slower], "operation:Lodaer", 0.2)


def test_two_sides_are_needed(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "A"]) == 2
    assert cli.main(["compare", "A", "B", "--metric", "wait"]) == 2
    assert "add: --fail-above" in capfd.readouterr().err
    for wrong in ("5", "-1%", "x", "nan%"):
        with pytest.raises(SystemExit) as ended:
            cli.main(["compare", "A", "B", "--fail-above", wrong])
        assert ended.value.code == 2


def test_what_a_side_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a-1", "a-2", "folder/x", "folder/y", "odd,name"):
        Path(name).mkdir(parents=True)
        manifest = {"schema": 1, "state": "ended", "command": []}
        Path(name, "run.json").write_text(json.dumps(manifest))

    def paths(text: str) -> list[str]:
        return [str(run.path) for run in comparing.given(text).runs]

    assert paths("a-1") == ["a-1"]
    assert paths("a-2,a-1,a-2") == ["a-2", "a-1"]
    assert paths("a-*") == ["a-1", "a-2"]
    assert paths("folder") == ["folder/x", "folder/y"]
    assert paths("odd,name") == ["odd,name"]
    for wrong in ("b-*", "nothing", "a-1,nothing"):
        with pytest.raises(LotusError):
            paths(wrong)


def test_sweeps_are_compared_setting_by_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swept(name: str, workers: tuple[int, ...]) -> str:
        runs = [
            {"setting": place, "repeat": repeat, "directory": f"{count}-{repeat}",
             "state": "done", "exit_code": 0, "elapsed_ns": 1}
            for place, count in enumerate(workers) for repeat in range(2)
        ]  # fmt: skip
        settings = [Setting(count, 2 if count else None).as_json() for count in workers]
        (tmp_path / name).mkdir()
        manifest = {"settings": settings, "varied": ["num_workers"], "runs": runs}
        sweep.write(tmp_path / name, manifest)
        return str(tmp_path / name)

    def loaded(self: sweep.Sweep, setting: Setting) -> list[Any]:
        scale = 1.4 if self.path.name == "after" else 1.0
        seed = 10 * len(self.path.name) + setting.num_workers
        return [recorded(seed + k, scale, workers=setting.num_workers) for k in (100, 200)]

    monkeypatch.setattr(sweep.Sweep, "loaded", loaded)
    a, b = swept("before", (0, 1, 2)), swept("after", (1, 2, 4))
    found = list(comparing.comparisons([a, b]))
    assert [one.setting for one in found] == ["workers1", "workers2"]
    for one in found:
        line = one.line("operation:Loader")
        assert line is not None
        assert line.difference.difference == pytest.approx(0.4, abs=0.05)
        assert len(one.a.runs) == 2
    assert "Setting: workers2" in shown(*found)
    assert len(compare_gate.judge(found, "operation:Loader", 5.0).texts) == 2
    with pytest.raises(LotusError, match="no setting in common"):
        list(comparing.comparisons([a, swept("other", (8,))]))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text('{"schema": 1, "state": "ended"}')
    with pytest.raises(LotusError, match="is a sweep and another side is not"):
        list(comparing.comparisons([a, str(tmp_path / "run")]))
