"""overhead/comparison.py: what it says of a tool is what its runs did; failures are reported."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lotus.workloads.catalogue import WORKLOADS
from tests.unit.benches import BENCH, bench

measurements = bench("measurements")
overhead = bench("overhead.comparison")
answers = bench("overhead.answers")
exact = bench("overhead.exact")
table = bench("overhead.table")
tools = bench("overhead.compared_tools")
traceml = bench("overhead.traceml_script")


def row(number: int, tool: str, wall: float = 2.0, **more: object) -> object:
    fields = {"loop_s": 1.0, "cpu_s": 3.0, "samples": 10, "output_bytes": 0, "loss": "0.5"}
    return overhead.Row(number, "text", tool, wall_s=wall, **{**fields, **more})


def known(**more: object) -> dict:
    return {
        "machine": {"cpu": "a CPU", "cpus": 2, "memory_bytes": 2**34, "kernel": "6"},
        "python": "3.11",
        "torch": "2",
        "sizes": {"text": 10},
        "workers": 2,
        "quick": False,
        "instructions": False,
        "tools": {"nothing": "3.11", "lotus": "1", "py-spy": "2"},
        "not_run": {"austin": "austin is not installed: pip install austin-dist==3.7.0"},
        **more,
    }


def test_an_interval_holds_the_median_of_any_distribution() -> None:
    # Tables of the sign test: ranks that hold the median with 95 % (0 is the least value).
    assert [table.outermost(n) for n in (1, 2, 5, 6, 7, 8, 9, 11, 12, 15, 20)] == [
        *(0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 5)
    ]
    values = [0.1, 0.2, 0.15, 0.4, 0.12, 0.11, 0.3]
    spread = table.spread(values)
    assert (spread.median, spread.low, spread.high, spread.count) == (0.15, 0.1, 0.4, 7)
    assert spread.deviation == pytest.approx(0.05)
    assert spread.resolved
    assert not table.spread([-0.01, *values[1:]]).resolved
    assert not table.spread(values[:5]).resolved  # five pairs never reach 95 %


def test_median_and_deviation_are_those_of_pyperf() -> None:
    pyperf = pytest.importorskip("pyperf")
    values = [1.0, 1.3, 1.1, 1.7, 1.2, 1.25]
    bench = pyperf.Benchmark([pyperf.Run(values, metadata={"name": "x"}, collect_metadata=False)])
    spread = table.spread(values)
    assert (spread.median, spread.deviation) == (bench.median(), bench.median_abs_dev())


def test_a_cost_is_of_pairs_of_the_same_round_and_the_first_round_gives_memory_only() -> None:
    rows = [row(0, "nothing", 9.0, peak_bytes=100), row(0, "lotus", 1.0, peak_bytes=110)]
    for number in range(1, 8):  # the machine slows down: only pairs tell
        rows.append(row(number, "nothing", 2.0 * number))
        rows.append(row(number, "lotus", 2.1 * number, output_bytes=600, workers=2))
    nothing, lotus = table.cells(rows)
    assert lotus.spreads["wall_s"].median == pytest.approx(0.05)
    assert lotus.spreads["wall_s"].count == 7
    assert lotus.spreads["wall_s"].high == pytest.approx(0.05)
    assert lotus.spreads["peak_bytes"].median == pytest.approx(0.1)
    assert lotus.bytes_each == 60
    assert "instructions" not in lotus.spreads
    assert nothing.spreads["wall_s"].median == 0


def test_a_tool_that_failed_is_told_with_its_last_line_and_costs_nothing_known() -> None:
    rows = [row(n, "nothing") for n in range(8)]
    rows += [row(n, "py-spy", None, failed="exit code 1; last line: no rights") for n in range(8)]
    rows += [row(n, "lotus", 2.2, unit="batches", records=3, workers=2) for n in range(8)]
    cells = table.cells(rows)
    text = table.text(known(), rows, cells)
    line = next(line for line in text.splitlines() if line.startswith("  py-spy"))
    assert "FAILED: exit code 1; last line: no rights" in line
    assert "%" not in line
    assert "+10.0 %" in next(line for line in text.splitlines() if line.startswith("  lotus"))
    assert "pip install austin-dist==3.7.0" in text
    markdown = table.markdown(known(), rows, cells).splitlines()
    assert next(line for line in markdown if line.startswith("| py-spy 2")).count("failed") == 1
    assert any(line.startswith("| austin |") and "not run" in line for line in markdown)
    assert {line.count("|") for line in markdown if line.startswith("| lotus |")} <= {4, 8, 10}


def test_failures_in_part_and_changed_results_are_told() -> None:
    rows = [row(n, "nothing") for n in range(1, 8)]
    rows += [row(n, "lotus", loss="0.6") for n in range(1, 7)]
    rows.append(row(7, "lotus", None, failed="not done after 240 s"))
    text = table.text(known(), rows, table.cells(rows))
    assert "failed 1 of 7: not done after 240 s" in text
    assert "another loss than under nothing in 6 runs" in text


@pytest.mark.parametrize(
    ("taken", "text", "message"),
    [
        ({"killed": "", "status": 0}, "all\n", ""),
        ({"killed": "", "status": 2}, "a\n\x1b[31mno rights\x1b[0m\n\n",
         "exit code 2; last line: no rights"),
        ({"killed": "not done after 9 s", "status": -9}, "",
         "not done after 9 s; last line: it printed nothing"),
    ],
)  # fmt: skip
def test_a_failure_is_told_by_its_last_line(taken: dict, text: str, message: str) -> None:
    assert overhead.failure(taken, text) == message


def test_the_loops_time_is_narrowed_by_both_numbers_that_are_printed() -> None:
    text = (
        "[x] note\nepoch 0: loss 2.322, 512 images in 9.6 s, 53 images/s\n"
        "epoch 1: loss 0.967, 24 volumes in 4.1 s, 5.8 volumes/s\n"
    )
    seconds, samples, loss = overhead.loop_of(text)
    first = (max(9.55, 512 / 53.5) + min(9.65, 512 / 52.5)) / 2
    second = (max(4.05, 24 / 5.85) + min(4.15, 24 / 5.75)) / 2
    assert seconds == pytest.approx(first + second)
    assert (samples, loss) == (536, "0.967")
    assert overhead.loop_of(text + text)[1] == 536  # a tool may print it a second time
    assert overhead.loop_of("nothing")[1] == 0


def test_instructions_are_taken_only_where_they_were_counted_all_the_time() -> None:
    # As perf 6.1 writes it (`perf stat -x,`): value, unit, event, running time, share of it, ...
    line = "# started on Sat\n\n{},,{},1020304,{},,\n"
    assert overhead.counted(line.format("5123", "instructions:u", "100.00")) == 5123
    assert overhead.counted(line.format("5123", "instructions:u", "62.50")) is None
    assert overhead.counted(line.format("<not supported>", "instructions:u", "0.00")) is None


def test_measurements_are_read_as_written_and_one_that_was_cut_off_is_not_one(
    tmp_path: Path,
) -> None:
    kept = measurements.Measurements(tmp_path, "overhead", overhead.Row)
    assert kept.read() == []
    rows = [row(1, "lotus", 2.5, note='a "b", c', workers=2), row(1, "py-spy", None, failed="x\ny")]
    kept.write(rows)
    assert kept.read() == rows
    whole = kept.csv.read_text()
    for cut in ("2,text,lotus,,1.5", whole.splitlines()[1][:-1]):
        kept.csv.write_text(whole + cut)
        assert kept.read() == rows


def test_the_order_is_the_same_each_time_and_every_round_has_every_pair() -> None:
    class Args:
        quick, seed, pairs, scale = False, 0, 3, 1
        workload = ("text", "audio")

    some = [tools.BY_NAME[name] for name in ("nothing", "lotus", "cProfile")]
    plan = overhead.Bench(Args(), False).plan(some)
    assert plan == overhead.Bench(Args(), False).plan(some)
    assert len(plan) == len({(n, name, tool.name) for n, name, tool in plan}) == 4 * 2 * 3
    # A pair's runs are near each other: all tools of a workload before the next.
    for start in range(0, len(plan), 3):
        assert len({job[:2] for job in plan[start : start + 3]}) == 1
    assert len({tuple(tool.name for _, _, tool in plan[n : n + 3]) for n in range(0, 24, 3)}) > 1


def test_a_run_that_was_stopped_goes_on_and_what_fails_is_tried_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Args:
        quick, seed, pairs, scale, data, minutes = False, 0, 4, 1, tmp_path, math.inf
        workload = ("text",)

    class Bench(overhead.Bench):
        made: list[tuple[int, str]]

        def measure(self, number: int, name: str, tool: object, memory: bool) -> object:
            if len(self.made) == 7:
                raise KeyboardInterrupt
            self.made.append((number, tool.name))
            assert memory == (number == 0)
            failed = "no rights" if tool.name == "cProfile" else ""
            return row(number, tool.name, None if failed else 2.0, failed=failed)

    monkeypatch.setattr(overhead, "data_of", lambda *_: tmp_path / "none")
    some = [tools.BY_NAME[name] for name in ("nothing", "lotus", "cProfile")]
    kept = measurements.Measurements(tmp_path, "overhead", overhead.Row)
    ended = Args()
    ended.minutes = -1.0  # they are over
    none = Bench(ended, False)
    none.made = []
    with pytest.raises(SystemExit, match="15 measurements remain"):
        none.run(some, kept)
    assert none.made == []
    first = Bench(Args(), False)
    first.made = []
    with pytest.raises(KeyboardInterrupt):
        first.run(some, kept)
    rows = kept.read()
    assert [(row.round, row.tool) for row in rows if not row.failed] == [
        job for job in first.made if job[1] != "cProfile"
    ]
    second = Bench(Args(), False)
    second.made = []
    second.run(some, kept)
    rows = kept.read()
    assert [(row.round, row.tool) for row in rows] == [
        (number, tool.name) for number, _, tool in first.plan(some)
    ]
    assert not set(first.made) & set(second.made)
    tried = [job for job in (*first.made, *second.made) if job[1] == "cProfile"]
    assert tried == [(0, "cProfile"), (1, "cProfile")]
    assert [row.failed for row in rows if row.tool == "cProfile"] == ["no rights"] * 5
    assert "of 15 measurements are there" in capsys.readouterr().out


def test_what_is_left_is_estimated_by_what_was_made() -> None:
    took = {("text", "lotus"): [4.0, 6.0], ("text", "nothing"): [2.0]}
    left = [("text", "lotus"), ("audio", "lotus")]
    assert overhead.estimate(took, left) == pytest.approx(5 + 4)


@pytest.mark.parametrize("name", WORKLOADS)
def test_tracemls_lines_are_put_around_the_step_of_each_workload(name: str) -> None:
    source = WORKLOADS[name].script.read_text()
    changed = traceml.changed(source)
    compile(changed, name, "exec")
    lines = changed.splitlines()
    step = next(n for n, line in enumerate(lines) if "with traceml.trace_step(model):" in line)
    assert "enumerate(loader" in lines[step - 1]
    backward = next(line for line in lines if "loss.backward()" in line)
    assert lines[step].index("with") < backward.index("loss")
    assert lines.index("import traceml_ai as traceml") > lines.index("import torch")
    with pytest.raises(ValueError, match="0 loops"):
        traceml.changed("for x in y:\n    pass\n")


def test_every_tool_has_a_command_answers_and_evidence(tmp_path: Path) -> None:
    for tool in tools.TOOLS:
        words = tool.words("python", str(WORKLOADS["text"].script), ["--data", "d"], tmp_path)
        assert words[-2:] == ["--data", "d"], tool.name
        if tool.name.startswith("nothing"):
            continue
        answered = answers.answers_of(tool.name, known())
        assert list(answered) == list(answers.QUESTIONS)
        assert all(why for _, why in answered.values()), tool.name
        assert {answer for answer, _ in answered.values()} <= {"yes", "partly", "no", "not run"}
    without = answers.answers_of("lotus --perf", known())
    assert (without["counters of a function"][0], without["wait"][0]) == ("partly", "yes")
    assert answers.short("lotus", known()) == "5 of 5, operation"
    assert set(answers.answers_of("austin", known()).values()) == {
        ("not run", "austin is not installed: pip install austin-dist==3.7.0")
    }


def test_what_a_tool_left_is_read_and_nothing_is_not_taken_for_it(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.write_text(
        'process 1:"python a";main (a.py:1) 5\n'
        'process 1:"python a";process 2:"python a";_worker_loop (w.py:1);fetch (f.py:2) 7\n'
    )
    seen = tools.BY_NAME["py-spy"].look(tmp_path, "1.5s behind in sampling, x\n")
    assert (seen.records, seen.workers) == (12, 1)
    assert seen.note == "2 processes; up to 1.5 s behind"
    (tmp_path / "austin.txt").write_text(
        "# mode: wall\n\nP1;T1;a:main:1 9\nP3;T3;w:_worker_loop:2 8\n"
    )
    seen = tools.BY_NAME["austin"].look(tmp_path, "")
    assert (seen.records, seen.workers, seen.note) == (2, 1, "2 processes")
    events = [{"ph": "X", "pid": 4, "name": "aten::add"}, {"ph": "X", "pid": "Spans", "name": "s"}]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    with pytest.raises(ValueError, match="no enumerate"):
        tools.BY_NAME["torch.profiler"].look(tmp_path, "")
    events.append({"ph": "X", "pid": 4, "name": "enumerate(DataLoader)#_Iter.__next__"})
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    seen = tools.BY_NAME["torch.profiler"].look(tmp_path, "")
    assert (seen.records, seen.workers) == (2, 0)


TREE = """
import os, sys, time
def burn(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until: pass
if os.fork() == 0:
    if os.fork() == 0:
        burn(0.3)  # its parent is gone by then
    os._exit(0)
os.wait()
burn(0.1)
print("last word", flush=True)
os._exit(3)
"""


def test_the_whole_tree_is_counted_and_a_command_ends_at_its_limit(tmp_path: Path) -> None:
    def run(*words: str) -> dict:
        command = [sys.executable, str(BENCH / "overhead" / "command_resources.py"), *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return json.loads(done.stdout.splitlines()[-1])

    printed = tmp_path / "printed"
    taken = run("--memory", "--stdout", str(printed), "--", sys.executable, "-c", TREE)
    assert taken["status"] == 3
    assert taken["cpu_s"] >= 0.4  # that of the orphan too
    assert taken["killed"] == ""
    assert printed.read_text() == "last word\n"
    forever = "import os, time\nos.fork()\ntime.sleep(1000)"
    taken = run("--limit", "0.5", "--", sys.executable, "-c", forever)
    assert taken["status"] == -9
    assert taken["killed"].startswith("not done after")


def test_nothing_goes_on_where_the_benchmark_is_ended() -> None:
    # Written at once: two prints could mix.
    program = 'import os, time\nos.fork()\nos.write(1, b"%d\\n" % os.getpid())\ntime.sleep(1000)'
    command = [
        sys.executable,
        str(BENCH / "overhead" / "command_resources.py"),
        "--",
        sys.executable,
        "-c",
        program,
    ]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert run.stdout
        pids = [int(run.stdout.readline()) for _ in range(2)]
        run.terminate()
        taken = json.loads(run.stdout.read().splitlines()[-1])
    finally:
        run.terminate()
        run.communicate()
    assert taken["killed"] == "the benchmark was ended"
    for pid in pids:  # both were waited for
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_exact_counts_are_told_of_the_loop_the_start_and_a_usual_program() -> None:
    small, large = exact.SIZES["tiny_images"]
    counts = {("plain", n): 10_000_000.0 + n * 1000 for n in (small, large)}
    counts |= {("traced", n): 10_500_000.0 + n * 1020 for n in (small, large)}
    text = exact.words("tiny_images", counts)
    assert "the loop +2.00% (20 instructions more on 1,000 a sample)" in text
    assert "the start +500,000 on 10,000,000" in text
    whole = (10_500_000 + 50_000 * 1020) / (10_000_000 + 50_000 * 1000) - 1
    assert f"of 50,000 samples {whole:+.2%} (aim +1.5%)" in text
