"""What the report looks like, and that nothing in a trace can harm the reader."""

import dataclasses
import io
import json
import math
import os
import re
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

import lotus.reading.run
from lotus import cli
from lotus.analysis.summary import summarise
from lotus.analysis.verdict.advice.advice import NAMED
from lotus.analysis.verdict.run_time import STEP, RunPart, RunTime
from lotus.analysis.verdict.time_outside import with_outside
from lotus.common import tunable_loop
from lotus.common.storage import files
from lotus.common.text import formatting
from lotus.reporters.base.console import plain_console
from lotus.reporters.run import run_document, short_report, terminal
from lotus.reporters.run.markdown_report import markdown
from lotus.reporters.run.parts import coverage, next_steps, report_columns
from tests.unit.simulated import Plan

HOSTILE = "\x1b[31mred\x1b]0;title\x07\n\r\u202e[bold]"


def shown(run: object, loader: int | None = None) -> str:
    file = io.StringIO()
    terminal.write(plain_console(file), summarise(run), loader=loader)
    return file.getvalue()


def hostile() -> object:
    run = Plan(operations={HOSTILE: 2.0}, batches=4).run()
    run.manifest["command"] = ["python", HOSTILE + "\udcff"]
    run.loaders["dataset"] = HOSTILE
    run.loaders["call_site"] = HOSTILE
    run.paths["path"] = HOSTILE
    run.lost = pd.DataFrame({"what": [HOSTILE], "pid": 1, "count": 3, "bytes": 10})
    run.unseen = [{"what": HOSTILE, "why": HOSTILE}]
    run.notes = [HOSTILE]
    return run


def test_the_verdict_comes_first() -> None:
    text = shown(Plan(operations={"Loader": 2.0, "Slow": 20.0}).run())
    first = next(line for line in text.splitlines()[1:] if line)
    assert first == "HIGHLY INPUT-BOUND"
    for wanted in (
        "First cause Slow", "Next step", "Operations", "Per batch", "Workers", "Slowest samples",
        "Sums (fetch", "remainder", "samples/s", "out of order",
    ):  # fmt: skip
        assert wanted in text
    assert "terms: `lotus schema report`" in text
    assert "docs/" not in text
    assert "\x1b" not in text


@pytest.mark.parametrize("workers", [0, 2])
def test_eighty_columns_are_enough(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run = Plan(workers=workers, operations={"RandomResizedCropWithAVeryLongName": 123.456}).run()
    run.ops = run.ops.assign(cpu_ns=1, minor_faults=0, major_faults=0, read_bytes=0)
    run.resources = pd.DataFrame(
        {"rank": 0, "pid": 100, "worker": 0, "time_ns": [1, 2], "pss": [10**9, 3 * 10**9]}
    )
    lines = shown(run).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("RandomResizedCrop" in line for line in lines)


def test_memory_that_was_read_once_is_shown_as_unknown() -> None:
    run = Plan().run()
    run.resources = pd.DataFrame(
        {"rank": 0, "pid": [100, 101, 101], "worker": [0, 1, 1], "time_ns": [1, 2, 3],
         "pss": [2**20, 2**20, 3 * 2**20]}
    )  # fmt: skip
    text = shown(run)
    rows = [line.split() for line in text.partition("\nWorkers")[2].splitlines()[2:4]]
    assert [row[-2:] for row in rows] == [["1.00MiB", "-"], ["3.00MiB", "2.00MiB"]]
    assert "grew -: not known, because the memory of that worker was read only once" in text
    workers = run_document.document(summarise(run))["loaders"][0]["workers"]
    assert [worker["growth_bytes"] for worker in workers] == [None, 2 * 2**20]
    assert [worker["growth_reason"] for worker in workers] == ["its memory was read once", ""]


def test_names_of_a_trace_cannot_steer_the_terminal() -> None:
    texts = [shown(hostile()), "\n".join(short_report.short_report(hostile()))]
    for text in [*texts, files.json_text(run_document.document(summarise(hostile())))]:
        assert not set(text) & set("\x1b\x07\r\u202e\udcff")
        text.encode()
    assert "[bold]" in texts[0]


def test_the_document_has_the_numbers_of_the_report() -> None:
    run = Plan(operations={"Loader": 2.0, "Slow": 20.0}).run()
    text = files.json_text(run_document.document(summarise(run)))
    document = json.loads(text, parse_constant=pytest.fail)
    loader = document["loaders"][0]
    assert document["schema"] == 1
    assert document["run"]["ranks"][0]["rank"] == 0
    assert document["verdict"]["kind"] == "input-bound"
    assert document["verdict"]["causes"][0]["title"] == "Slow"
    assert {row["operation"] for row in loader["operations"]} == {"Loader", "Slow"}
    assert loader["operations"][0]["count"] == 160
    assert loader["operations"][0]["cpu_ns"] is None
    phases = sum(loader["phases"].values())
    assert phases == pytest.approx(loader["times"]["wait_ns"])
    assert {row["whole"] for row in loader["books"]} == {"sample", "fetch"}
    assert set(loader) == {
        "loader", "ranks", "settings", "verdict", "times", "phases", "operations", "other_time",
        "blocked", "books", "slowest_samples", "slow_batches", "batches", "order", "workers",
        "rank_times", "epochs", "passes", "coverage", "counted", "held_up", "machine",
        "device",
    }  # fmt: skip


def test_the_short_form_is_short() -> None:
    lines = short_report.short_report(Plan(operations={"Loader": 2.0, "Slow": 20.0}).run())
    assert lines[0].startswith("HIGHLY INPUT-BOUND")
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    assert any("Slow" in line for line in lines)
    assert any("next step" in line for line in lines)


def test_what_is_least_missed_is_left_out_of_a_long_end() -> None:
    run = Plan(operations={"Slow": 5.0, "Other": 2.0, "Third": 2.0}, sampler=8.0).run()
    run.notes = [f"note {number}" for number in range(9)]
    whole = short_report.short_report(run, most=1000)
    shown_lines = short_report.short_report(run, most=len(whole) - 1)
    least = short_report.short_report(run, most=0)
    assert len(least) < len(shown_lines) < len(whole)
    assert not any(line.startswith("step 3") for line in shown_lines)
    for lines in (whole, shown_lines, least):
        assert lines[0] == whole[0]
        text = "\n".join(lines)
        for words in (
            "Where the ",
            "Why (share",
            "next step: ",
            "Slow",
            "more losses or notes",
            "samples/s",
        ):
            assert words in text
        advice = text.partition("next step: ")[2].partition(":")[0]
        assert advice == "\n".join(whole).partition("next step: ")[2].partition(":")[0]


def test_lines_that_are_left_show_more_of_the_bars_and_causes() -> None:
    run = Plan(operations={"Slow": 5.0, "Other": 2.0, "Third": 2.0}, sampler=8.0).run()
    run.manifest["start_ns"] = int(run.epochs["start_ns"].min() - 1e9)
    run.manifest["end_ns"] = int(run.epochs["end_ns"].max() + 1e9)
    blocks = short_report._blocks(summarise(run))

    def rows(room: short_report._Room) -> list[str]:
        return short_report._lines(blocks, room)

    least = dataclasses.replace(short_report._ROOMS[-1], bars=2)
    most = len(rows(least)) + 1
    fuller = short_report._fuller(blocks, least, most)
    assert len(rows(least)) < len(fuller) <= most
    assert short_report._fuller(blocks, least, 0) == []


def test_each_block_is_rendered_once_for_each_of_its_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Plan(operations={"Slow": 5.0, "Other": 2.0, "Third": 2.0}, sampler=8.0).run()
    run.notes = [f"note {number}" for number in range(9)]
    summary = summarise(run)
    least = short_report.lines(summary, most=0)  # tries all rooms
    rendered = {name: Mock(wraps=getattr(coverage, name)) for name in ("losses", "device", "rate")}
    for name, counted in rendered.items():
        monkeypatch.setattr(coverage, name, counted)
    assert short_report.lines(summary, most=0) == least
    limits = {"losses": {room.losses for room in short_report._ROOMS}, "device": {None},
              "rate": {room.gains for room in short_report._ROOMS}}  # fmt: skip
    for name, counted in rendered.items():
        assert counted.call_count == len(limits[name])


def test_what_most_of_the_rest_is_has_its_name() -> None:
    parts = dict.fromkeys(("Read", "Crop", "Flip", "Scale", "Shift"), 1.0)
    run = Plan(workers=0, batches=60, operations=parts, step=30.0, collate=0.0, own=0.0).run()
    (line,) = (line for line in short_report.short_report(run) if "%  the rest" in line)
    assert line.endswith("the rest, most of it: the training step")


def test_the_two_largest_of_the_rest_are_named_where_none_is_most_of_it() -> None:
    causes = summarise(Plan(operations={"Slow": 5.0, "Crop": 4.0}).run()).loaders[0].verdict.causes
    two = [
        dataclasses.replace(cause, share=part)
        for cause, part in zip(causes[:2], (0.1, 0.2), strict=True)
    ]
    assert short_report._largest(two, 0.15) == "Crop"
    assert short_report._largest(two, 0.25) == "Crop (20%) and Slow (10%)"
    assert short_report._largest(two, 0.35) == ""


def test_the_shares_of_a_list_of_causes_add_up() -> None:
    parts = dict.fromkeys(("Read", "Crop", "Flip", "Scale", "Shift", "Blur"), 1.0)
    run = Plan(workers=1, operations=parts).run()
    summary = summarise(run)
    causes = summary.loaders[0].verdict.causes
    columns = report_columns.shown(report_columns.CAUSES, summary.loaders[0], "terminal")
    rows = report_columns.cause_rows(columns, causes[:3])
    assert [row[-1] for row in rows] == [*(cause.title for cause in causes[:3]), "the rest"]
    for place in (0, 2):  # of the loop, and of its waits
        assert sum(float(row[place].rstrip("%")) for row in rows) == pytest.approx(100, abs=2)
    table = shown(run).partition("\nWhat the loop's time")[2].partition("\n\n")[0]
    assert re.search(r"^ +\d\d% .+ \d\d%  the rest$", table, re.MULTILINE)
    assert re.search(r"^\| the rest \| \d\d% \|$", markdown(summary), re.MULTILINE)


def test_steps_after_the_first_are_numbered_and_the_gain_says_of_what() -> None:
    run = Plan(operations={"Slow": 5.0}, sampler=8.0).run()
    assert next_steps.later_causes(summarise(run).loaders[0].verdict)
    text = "\n".join(short_report.short_report(run))
    assert text.index("\nnext step: ") < text.index("\nstep 2, for ")
    assert "\nwithout the first cause: the loop " in text
    assert "Step 2" in shown(run)


def test_of_workers_nothing_is_said_where_there_are_none() -> None:
    alone, two = (
        " ".join(short_report.short_report(Plan(workers=count).run())).partition("loop ")[2]
        for count in (0, 2)
    )
    assert "workers idle" in two
    assert alone
    assert "workers" not in alone.rpartition("loop ")[2]


def test_the_end_says_what_to_type_next(tmp_path: Path) -> None:
    run = Plan(operations={"Slow": 20.0}).run()
    run.manifest["command"] = ["python", "my train.py"]
    assert shown(run).endswith("\nnext: lotus tune -- python 'my train.py'\n")
    run.manifest["cwd"] = os.getcwd()
    assert shown(run).endswith("\nnext: lotus tune -- python 'my train.py'\n")
    elsewhere = tmp_path / "a project"
    run.manifest["cwd"] = str(elsewhere)  # a folder of another machine
    assert shown(run).endswith("\nnext: lotus tune -- python 'my train.py'\n")
    elsewhere.mkdir()
    assert shown(run).endswith(f"\nnext: env -C '{elsewhere}' lotus tune -- python 'my train.py'\n")
    run.manifest["command"] = ["python", "train.py", "--token", "***"]  # hidden: no one can type it
    assert shown(run).endswith("\nnext: lotus tune -- COMMAND\n")
    run.manifest |= {"state": "ended", "exit_code": None, "signal": None}  # of lotus.trace
    assert shown(run).endswith("\nnext: lotus.tune(loader)\n")
    keeps_up = Plan(operations={"Quick": 0.1}, step=50.0, batches=100).run()
    assert shown(keeps_up).splitlines()[2] == "NOT INPUT-BOUND"
    assert "lotus tune" not in shown(keeps_up)


def test_tune_is_offered_only_for_loops_that_it_does_not_refuse_as_too_short() -> None:
    short = Plan(batches=10, operations={"Slow": 20.0})
    run = short.run()
    summary = summarise(run)
    assert summary.loaders[0].verdict.kind == "input-bound"
    assert summary.loaders[0].longest_epoch_s < tunable_loop.LEAST_EPOCH_S
    assert "lotus tune" not in shown(run)
    # Of an epoch that was left nobody knows how long it would have been.
    run.epochs["exhausted"] = False
    assert "next: lotus tune" in shown(run)
    long = dataclasses.replace(short, batches=40).run()
    assert summarise(long).loaders[0].longest_epoch_s > tunable_loop.LEAST_EPOCH_S
    assert "next: lotus tune" in shown(long)


def test_one_advice_for_two_causes_is_given_once() -> None:
    run = Plan(workers=0, operations={"One": 5.0, "Two": 4.0}).run()
    first, two = summarise(run).loaders[0].verdict.causes[:2]
    assert first.advice == two.advice.replace("Two", "One")
    assert "Step 2" not in shown(run)
    assert "".join(shown(run).split()).count("".join(first.advice.split())) == 1


def test_what_was_lost_is_told_in_every_form() -> None:
    run = Plan().run()
    run.lost = pd.DataFrame(
        {"what": ["end of a log cut off"] * 2, "pid": [1, 2], "count": 1, "bytes": [100, 28]}
    )
    run.unseen = [{"what": "StatefulDataLoader", "why": "it has its own worker loop"}]
    for text in (shown(run), "\n".join(short_report.short_report(run))):
        assert "end of a log cut off: 2 (128 B), in 2 places" in text
        assert "Not seen: StatefulDataLoader" in text
    document = run_document.document(summarise(run))
    assert [row["bytes"] for row in document["lost"]] == [100, 28]
    assert document["unseen"] == run.unseen


def test_what_steps_and_making_would_do_alone_has_an_interval() -> None:
    def slow(index: int, worker: int) -> float:
        return 2.0 + index * 37 % 11

    run = Plan(batches=80, step=lambda batch: 1.0 + batch * 7 % 5, operations={"Slow": slow}).run()
    text = " ".join(shown(run).split())
    rate = r"[\d,.]+"
    assert re.search(
        rf"Alone, at the times of this run: the steps {rate} \({rate} to {rate}\), the making of "
        rf"batches, without sending, {rate} \({rate} to {rate}\) samples/s\.",
        text,
    )
    (loader,) = run_document.document(summarise(run))["loaders"]
    for name in ("step_limit", "input_limit"):
        low, alone, high = (
            loader["times"][f"{name}{end}_samples_per_s"] for end in ("_low", "", "_high")
        )
        assert 0 < low < alone < high
    assert " an epoch), " in "\n".join(short_report.short_report(Plan(epochs=2).run()))
    assert " an epoch" not in "\n".join(short_report.short_report(Plan(epochs=1).run()))


def test_a_loss_that_changes_no_figure_is_left_to_the_report() -> None:
    run = Plan().run()
    slight = {"what": ["send times of a batch"], "pid": 1, "count": 4, "bytes": 0}
    run.lost = pd.DataFrame(slight)
    words = "when 4 batches had been sent is not known, as their workers ended before noting it"
    assert words in " ".join(shown(run).split())
    assert "had been sent" not in "\n".join(short_report.short_report(run))


def test_a_loader_that_was_not_seen_is_named_however_much_was_lost() -> None:
    run = Plan().run()
    kinds = [f"loss {number}" for number in range(9)]
    run.lost = pd.DataFrame({"what": kinds, "pid": 1, "count": 1, "bytes": 0})
    run.unseen = [{"what": "StatefulDataLoader", "why": "it has its own worker loop"}]
    lines = short_report.short_report(run)
    assert [line for line in lines if line.startswith("Not seen: StatefulDataLoader")]
    shown_losses = [line for line in lines if line.startswith("loss ")]
    assert shown_losses
    assert lines[-1] == f"and {len(kinds) - len(shown_losses)} more losses or notes"


def test_what_the_recording_covers_is_told() -> None:
    run = Plan().run()
    run.manifest |= {"level": "op+cpu", "batches": "100:200", "every": 5, "max_log": 500_000_000}
    assert "Recorded: level op+cpu, batches 100:200 of each epoch, one batch in 5" in shown(run)
    assert "at most 477 MiB" in shown(run)


def test_an_exit_code_a_signal_and_a_killed_lotus_are_told() -> None:
    run = Plan().run()
    run.manifest["exit_code"] = 3
    assert "exit code 3" in shown(run)
    run.manifest |= {"exit_code": None, "signal": 9}
    assert "ended by SIGKILL" in shown(run)
    run.manifest |= {"signal": None, "state": "running", "end_ns": None}
    assert "still running" in shown(run)


def test_a_run_without_a_loader_says_so() -> None:
    run = Plan().run()
    for name in ("ops", "samples", "batches", "waits", "epochs", "loaders"):
        setattr(run, name, getattr(run, name).iloc[:0])
    assert "No DataLoader was iterated" in shown(run)
    assert short_report.short_report(run) == ["No DataLoader was iterated in this run."]
    run.lost = pd.DataFrame({"what": ["empty event log"], "pid": -1, "count": 1, "bytes": 0})
    assert "It is not known whether a DataLoader was iterated" in shown(run)
    assert run_document.document(summarise(run))["verdict"] is None


def test_other_loaders_are_short_unless_asked_for() -> None:
    run, other = Plan(batches=4).run(), Plan(batches=20, loader=1).run()
    for name in ("ops", "samples", "batches", "waits", "workers", "epochs", "loaders"):
        both = [getattr(run, name), getattr(other, name)]
        setattr(run, name, pd.concat(both, ignore_index=True))
    text = shown(run)
    assert text.count("Operations") == 1
    assert text.index("Loader 1") < text.index("Loader 0")
    assert shown(run, 0).index("Loader 0") < shown(run, 0).index("Loader 1")


@pytest.mark.parametrize(("part", "told"), [(0.6, True), (0.1, False)])
def test_the_share_of_another_loader_is_said_if_it_is_large(part: float, told: bool) -> None:
    run, other = Plan(batches=20).run(), Plan(batches=4, loader=1).run()
    for name in ("ops", "samples", "batches", "waits", "workers", "epochs", "loaders"):
        both = [getattr(run, name), getattr(other, name)]
        setattr(run, name, pd.concat(both, ignore_index=True))
    parts = (RunPart(STEP, 0, 1e9 * (1 - part)), RunPart(STEP, 1, 1e9 * part))
    summary = dataclasses.replace(summarise(run), time=RunTime(1e9, parts, 0))
    text = " ".join(short_report.lines(summary))
    assert ("): 60% of the run, " in text) == told


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0"), (999, "999 ns"), (999.6, "1.00 µs"), (1_500, "1.50 µs"), (45_600_000, "45.6 ms"),
        (999_960_000, "1.00 s"), (123.4e9, "123 s"), (3_700e9, "1 h 01 min"),
        (754e9, "12 min 34 s"), (math.nan, "-"), (-2e6, "-2.00 ms"),
    ],
)  # fmt: skip
def test_durations_have_three_digits_and_a_unit(ns: float, text: str) -> None:
    assert formatting.duration(ns) == text


def test_shares_sizes_and_counts_read_well() -> None:
    assert [formatting.share(part) for part in (0, 0.0001, 0.05, 0.5, 1, math.nan)] == [
        "0%", "<0.1%", "5.0%", "50%", "100%", "-",
    ]  # fmt: skip
    assert [formatting.size(count) for count in (0, 512, 1536, 2**31)] == [
        "0", "512 B", "1.50 KiB", "2.00 GiB",
    ]  # fmt: skip
    assert formatting.plural(1, "batch") == "1 batch"
    assert formatting.plural(2000, "batch") == "2,000 batches"
    assert formatting.plural(2, "epoch") == "2 epochs"
    assert formatting.shorten("a" * 50 + "b" * 50, 10) == "aaa…bbbbbb"
    line = ["/opt/env/bin/python", "/home/me/train.py", "--data", "/mnt/d"]
    assert formatting.brief_command(line, 60) == " ".join(line)
    assert formatting.brief_command(line, 40) == "python train.py --data d"


class TestCommand:
    @pytest.fixture(autouse=True)
    def _run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        run = Plan(operations={"Loader": 2.0, "Slow": 20.0}).run()
        monkeypatch.setattr(lotus.reading.run, "load", lambda path, trust: run)

    def test_report(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        assert cli.main(["report", str(tmp_path)]) == 0
        assert "INPUT-BOUND" in capsys.readouterr().out

    def test_json(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        assert cli.main(["report", str(tmp_path), "--json", "--threshold", "2.5"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["run"]["threshold_ns"] == 2.5e6
        assert np.isfinite(document["loaders"][0]["times"]["samples_per_s"])

    @pytest.mark.parametrize("form", [[], ["--json"], ["--markdown"]])
    def test_the_verdict_on_a_run_is_worked_out_once(
        self, form: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        counted = Mock(side_effect=with_outside)
        monkeypatch.setattr("lotus.analysis.summary.with_outside", counted)
        assert cli.main(["report", str(tmp_path), *form]) == 0
        assert counted.call_count == 1

    def test_a_loader_that_is_not_there(
        self, capfd: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        assert cli.main(["report", str(tmp_path), "--loader", "5"]) == 2
        assert "there is no loader 5" in capfd.readouterr().err

    def test_a_wrong_threshold(self, tmp_path: Path) -> None:
        with pytest.raises(SystemExit) as error:
            cli.main(["report", str(tmp_path), "--threshold", "nan"])
        assert error.value.code == 2


def test_a_document_has_the_advice_once_with_the_name_of_the_operation() -> None:
    verdict = summarise(Plan(operations={"Loader": 2.0, "Slow": 20.0}).run()).verdict
    assert verdict is not None
    cause = run_document.verdict_document(verdict)["causes"][0]
    assert "Make Slow cheaper" in cause["advice"]
    assert "unnamed_advice" not in cause
    assert verdict.causes[0].unnamed_advice == cause["advice"].replace("Slow", NAMED)


def test_a_wait_that_never_ended_comes_before_the_verdict() -> None:
    run = Plan(operations={"Loader": 2.0}).run()
    run.path = "a run"
    run.open_waits = pd.DataFrame(
        {"pid": 1, "loader": 0, "epoch": 0, "batch": [9, 8], "start_ns": 5, "wait_ns": [48e9, 1e6]}
    ).astype("int64")
    text = " ".join(shown(run).split())
    wanted = "It ended after 48.0 s of waiting for batch 9 (epoch 0)"
    assert wanted in text
    assert "lotus top 'a run'" in text
    assert "batch 8" not in text  # a millisecond is no news
    assert text.index(wanted) < text.index("INPUT-BOUND")
    assert wanted in " ".join(" ".join(short_report.short_report(run)).split())
    assert run_document.document(summarise(run))["open_waits"][0]["wait_ns"] == 48_000_000_000
