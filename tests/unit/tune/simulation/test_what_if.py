"""`lotus whatif`: the question asked, the answer shown."""

import dataclasses
import io
import json
import math
from pathlib import Path

import pandas as pd
import pytest

from lotus.cli import main
from lotus.common.errors import LotusError
from lotus.common.storage import files
from lotus.reporters.base.console import plain_console
from lotus.reporters.tune import whatif_report as reporter
from lotus.tune.simulation import what_if
from lotus.tune.simulation.run_profile import profile
from lotus.tune.simulation.what_if import WhatIfQuestion, answer, answer_of_run
from tests.simulation import simulate
from tests.unit.simulated import Plan

PLAN = Plan(workers=2, step=1.0, cores=16)


def reply(plan=PLAN, **question):
    return answer(profile(plan.run(), step_cores=0.0), WhatIfQuestion(**question))


def test_nothing_changed_is_the_run_itself():
    result = reply()
    assert result.times == 1
    assert result.then.setting == result.profile.setting
    assert abs(result.error) < 0.02


def test_more_workers():
    result = reply(num_workers=8, prefetch_factor=4, batches=400)
    assert result.then.setting.num_workers == 8
    assert result.times > 3
    assert result.then.samples == 1600
    assert any("--also" in note for note in result.notes)
    assert result.today_binding.resource == "workers"


def test_cores_bind():
    result = reply(num_workers=16, cores=2, batches=400)
    assert result.machine.cores == 2
    assert result.then_binding.resource == "cores"
    assert result.then.cores_share == pytest.approx(1, abs=0.05)


def test_none_of_the_settings_of_workers_are_left_without_them():
    result = reply(num_workers=0)
    assert any("shared memory" in note for note in result.notes)
    assert result.then.setting.prefetch_factor is None
    assert result.times < 1


def test_each_sample_waits():
    result = reply(latency_ns=20e6)
    assert result.then.steady_samples_per_s == pytest.approx(2 * 4 / 0.0908, rel=0.05)


def test_a_bandwidth_needs_bytes():
    with pytest.raises(LotusError, match="--sample-bytes"):
        reply(bandwidth=1e6)
    with pytest.raises(LotusError, match="--bandwidth"):
        reply(sample_bytes=5)
    result = reply(bandwidth=1e6, sample_bytes=10_000, num_workers=16, batches=2000)
    assert result.then.steady_samples_per_s == pytest.approx(100, rel=0.02)
    assert result.then_binding.resource == "storage"
    measured = reply(Plan(workers=2, read_bytes=10_000), bandwidth=1e6)
    assert measured.then.steady_samples_per_s == pytest.approx(100, rel=0.1)


def test_a_question_about_a_recorded_run(monkeypatch):
    runs = {"R": PLAN.run(), "R1": Plan(workers=1, step=1.0, cores=16).run()}
    monkeypatch.setattr(what_if, "load", lambda path: runs[str(path)])
    more = WhatIfQuestion(num_workers=8)
    result = answer_of_run(Path("R"), more, step_cores=0.0)
    assert result.times == reply(num_workers=8).times
    assert any("--also" in note for note in result.notes)
    result = answer_of_run(Path("R"), dataclasses.replace(more, contention=9.0), also=Path("R1"))
    assert result.contention < 1, "as the other run shows it"
    with pytest.raises(LotusError, match="try: lotus whatif R --workers 2"):
        answer_of_run(Path("R"), WhatIfQuestion())


def misjudged(times, **question):
    """An answer by costs that are so many times what they were in the run."""
    made = profile(PLAN.run(), step_cores=0.0)
    object.__setattr__(made, "cpu", made.cpu * times)
    return answer(made, WhatIfQuestion(**question))


def printed(result):
    file = io.StringIO()
    reporter.write(plain_console(file), result)
    return " ".join(file.getvalue().split())


def test_a_simulation_that_is_far_off_says_so():
    result = misjudged(1.15, num_workers=8)
    assert -0.15 < result.error < -0.1
    assert "off the measured rate" in result.notes[0]
    assert "times as fast as today" in printed(result)


@pytest.mark.parametrize("times", [2.0, 0.5])
def test_a_simulation_that_is_too_far_off_answers_nothing(times):
    result = misjudged(times, num_workers=8)
    assert abs(result.error) > 0.15
    text = printed(result)
    assert "this run cannot be predicted" in text
    assert f"is {result.error:+.0%} off the measured rate, more than 15%" in text
    assert "lotus tune -- COMMAND" in text
    assert "as fast as today" not in text
    assert "8 workers" not in text
    document = json.loads(files.json_text(reporter.document(result)))
    assert document["times_as_fast"] is None
    assert document["error_of_today"] == result.error


def test_a_steady_rate_that_is_too_far_off_is_not_told():
    made = profile(PLAN.run(), step_cores=0.0)
    steady = made.measured.steady_samples_per_s / 2
    figures = dataclasses.replace(made.measured, steady_samples_per_s=steady)
    object.__setattr__(made, "measured", figures)
    result = answer(made, WhatIfQuestion(num_workers=8, batches=400))
    assert result.times is not None
    assert result.steady_times is None
    assert "after the warm-up" not in printed(result).partition("today ")[2]


def test_pinning_what_was_never_pinned():
    result = reply(pin_memory=True)
    assert any("pinned" in note for note in result.notes)
    assert result.times == 1


# The command


@pytest.fixture
def run(tmp_path):
    return str(simulate(tmp_path / "run", workers=2, batches=20))


def test_what_is_printed(run, capsys):
    assert main(["whatif", run, "--workers", "8", "--cores", "64", "--speedup", "Loader=2"]) == 0
    out = capsys.readouterr().out
    for words in (
        "measured",
        "simulated",
        "what if",
        "8 workers, prefetch 2, 64 cores",
        "waiting, start-up, shut-down",
    ):
        assert words in out
    assert "times as fast as today" in out
    assert "reliance" in out


def test_the_document(run, capsys):
    words = ["--latency", "20ms", "--no-in-order", "--prefetch", "4", "--step-cores", "0"]
    assert main(["whatif", run, *words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["machine"]["latency_ns"] == 20e6
    assert document["whatif"]["setting"]["in_order"] is False
    assert document["whatif"]["setting"]["prefetch_factor"] == 4
    assert document["today"]["setting"]["prefetch_factor"] == 2
    assert document["today"]["memory_bytes"] is None
    assert document["times_as_fast"] == pytest.approx(
        document["whatif"]["samples_per_s"] / document["today"]["samples_per_s"]
    )
    assert {gain["resource"] for gain in document["today"]["gains"]} > {"workers", "cores", "work"}


def test_memory_in_all_with_its_terms():
    run = PLAN.run()
    rows = [(time, 100 + time % 2, time % 2, 0, 350e6 + time // 2 * 60e6) for time in range(4)]
    columns = ["time_ns", "pid", "worker", "pss", "rss"]
    run.resources = pd.DataFrame(rows, columns=columns).assign(rank=0)
    result = answer(profile(run, step_cores=0.0), WhatIfQuestion(num_workers=4, prefetch_factor=2))
    file = io.StringIO()
    reporter.write(plain_console(file), result)
    text = " ".join(file.getvalue().split())
    worker = result.profile.fixed["worker_bytes"]
    assert result.then.memory_bytes == 350e6 + 4 * worker + result.then.in_flight_bytes
    assert "memory main process 334 MiB besides mapped files, 4 workers x " in text
    assert not any("total memory" in note for note in result.notes)


def test_memory_that_is_not_known_is_left_out_with_the_reason():
    result = reply()
    file = io.StringIO()
    reporter.write(plain_console(file), result)
    assert "main process" not in file.getvalue().split("note")[0]
    assert any("the total memory is not known" in note for note in result.notes)


def test_an_operation_that_is_not_there(run, capfd):
    assert main(["whatif", run, "--speedup", "Blur=2"]) == 2
    error = capfd.readouterr().err
    assert error.startswith("lotus: the run has no 'Blur'; it has: Loader")
    assert error.count("\n") == 1


def test_a_second_run_like_the_first_tells_nothing(run, capfd):
    assert main(["whatif", run, "--also", run]) == 2
    assert "contention" in capfd.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--workers", "-1"],
        ["--prefetch", "0"],
        ["--cores", "0"],
        ["--cores", "nan"],
        ["--speedup", "Loader"],
        ["--speedup", "Loader=-1"],
        ["--latency", "20"],
        ["--latency", "1.2.3ms"],
        ["--bandwidth", "fast"],
        ["--step-cores", "inf"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_asked(run, words, capsys):
    with pytest.raises(SystemExit):
        main(["whatif", run, *words])
    assert words[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [("20ms", 20e6), ("300us", 3e5), ("1.5 s", 1.5e9), ("7ns", 7.0)],
)
def test_times(text, expected):
    from lotus.commands.common.arguments import nanoseconds

    assert math.isclose(nanoseconds(text), expected)


@pytest.mark.parametrize(
    ("text", "expected"), [("200MB/s", 2e8), ("1GiB/s", 2.0**30), ("5kB", 5e3), ("9B/s", 9.0)]
)
def test_rates(text, expected):
    from lotus.commands.common.arguments import rate

    assert math.isclose(rate(text), expected)
