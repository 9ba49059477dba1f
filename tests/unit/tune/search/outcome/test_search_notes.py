"""What a search says where memory is short, nothing could be tried, or all trials failed."""

from __future__ import annotations

import dataclasses
import io
import math
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lotus.reporters.base.console import plain_console
from lotus.reporters.tune import tune_report as reporter
from lotus.settings.space import Measurement, Setting, Space
from lotus.tune.search.limits.safety import limits_of
from lotus.tune.search.outcome import search_notes
from lotus.tune.search.outcome.result import Result
from lotus.tune.search.trials.trial_rates import Checked, Speedup
from lotus.tune.search.trials.trial_runner import RuledOut, TrialRow
from tests.unit.tuned_program import MIB, Asks, Fake, find, room


def shown(result: Result, output: Path | None = Path("tuned.json"), *, table: bool = True) -> str:
    file = io.StringIO()
    console = plain_console(file, 1000)
    reporter.write(console, result, words=["python", "train.py"], output=output, table=table)
    return file.getvalue()


def test_what_the_program_grew_by_while_it_fetched_is_each_workers() -> None:
    program = Fake(own=Setting(0), worker_bytes=10 * MIB)
    assert find(program, Setting(8), limits=room(memory=1 << 30)).best == Setting(8).normal()
    program = Fake(own=Setting(0), worker_bytes=10 * MIB)
    program.watched = dataclasses.replace(program.watched, grown_bytes=150 * MIB)
    result = find(program, Setting(4), Setting(8), limits=room(memory=1 << 30))
    assert result.best == Setting(4).normal()
    (refused,) = (
        refused.why for refused in result.ruled_out if refused.setting == Setting(8).normal()
    )
    assert "8 workers x 160 MiB" in refused
    assert any("grew by 150 MiB while it fetched" in note for note in result.notes)


def test_where_no_worker_fits_the_verdict_says_so_and_what_to_do() -> None:
    program = Fake(own=Setting(0))
    space = Space(num_workers=(0, 1, 2, 4), prefetch_factor=(1, 2, 4))
    result = find(program, Setting(1), Setting(2), limits=room(shm=8 * MIB), space=space)
    output = shown(result)
    for text in (output, result.explain()):
        assert "no other setting could be tried" in text
        assert "no benefit" not in text
        assert "listed: " not in text  # why the strategy chose it among no others
        assert "/dev/shm has 8 MiB" in text
        assert "--shm-size" in text
    (line,) = (line for line in output.splitlines() if "never tried" in line)
    assert " and " in line
    assert "more: " in line
    assert result.best == result.own


def test_the_verdict_is_what_the_programs_own_steps_showed() -> None:
    result = find(Fake(own=Setting(0)), Setting(4))
    assert result.speedup is not None
    own_steps = Checked(result.best, Speedup(2.0, 1.9, 2.1, 4), 30, 20)
    output = " ".join(shown(dataclasses.replace(result, checked=own_steps)).split())
    checked = search_notes.checked(own_steps, result.best)
    verdict = f"4 workers x prefetch 2 instead of no workers: {checked}"
    assert (
        f"verdict {verdict} trials {search_notes.speedup(result.speedup)}, in which its" in output
    )
    assert (
        "2 times as fast in its own steps (95 % interval 1.9 to 2.1; in 4 rounds, 30 batches"
        in output
    )


def test_where_all_others_failed_the_verdict_says_why() -> None:
    why = "a worker was killed by SIGKILL"
    program = Fake(own=Setting(0), fails={2: why, 4: why})
    result = find(program, Setting(2), Setting(4))
    assert f"no other setting could be tried: keep no workers\n  why         {why}" in shown(result)


@pytest.mark.parametrize(
    ("own", "slower", "threads", "cpu_s", "note"),
    [
        (0, 9.0, 4, 0.004, "a step takes 9.00 ms beside 2 workers, 1.00 ms alone: its 4 threads"),
        (2, 9.0, 4, 0.004, "a step takes 9.00 ms beside 2 workers, 1.00 ms alone: its 4 threads"),
        (0, 40.0, 4, 0.004, "a step takes 40.0 ms beside 2 workers"),  # and no benefit
        (0, 1.5, 4, 0.004, ""),
        (0, 9.0, 1, 0.004, ""),
        (0, 9.0, 2, 0.004, ""),  # four cores: one for each thread and each worker
        (0, 9.0, 4, 0.001, ""),  # it works on one
    ],
)
def test_a_step_that_workers_take_cores_from(
    own: int, slower: float, threads: int, cpu_s: float, note: str
) -> None:
    program = Fake(own=Setting(own), slower_step=slower)
    steps = (0.001 * slower if own else 0.001,) * 40
    program.watched = dataclasses.replace(
        program.watched,
        threads=threads,
        steps_s=steps,
        step_cpu_s=(cpu_s,) * 40,
        alone_s=(0.001,) * 4 if own else (),
        alone_cpu_s=(cpu_s,) * 4 if own else (),
    )
    result = find(program, Setting(2), objective="train")
    noted = [note for note in result.notes if "beside" in note]
    assert len(noted) == bool(note)
    assert note in "".join(noted)
    if note:
        assert "torch.set_num_threads(2) in the program" in noted[0]


def test_one_that_was_slower_is_no_reason_to_say_so() -> None:
    program = Fake(own=Setting(0), fails={4: "it failed"}, start_s=1.0, batches=10)
    result = find(program, Setting(1), Setting(4))
    assert result.untried == ""
    assert "no benefit" in shown(result)


def test_where_not_even_the_own_setting_works_that_is_the_result() -> None:
    why = "ValueError: sample 5 is broken"
    program = Fake(own=Setting(0), fails=dict.fromkeys((0, 1, 2, 4), why))
    result = find(program, Setting(2), Setting(4))
    assert result.failure.endswith(f"not even of its own setting: {why}")
    assert result.failure in result.explain()
    assert shown(result).count("verdict") == 1


def test_nothing_is_tried_where_the_program_says_so() -> None:
    program = Fake(own=Setting(0))
    program.watched = dataclasses.replace(program.watched, forbidden="workers would read garbage")
    asks = Asks(Setting(2))
    result = find(program, strategy=asks)
    assert program.opened == []
    assert (result.best, result.untried) == (Setting(0), "workers would read garbage")
    assert result.failure == ""


def test_reasons_that_differ_in_figures_only_are_one_line() -> None:
    program = Fake(own=Setting(0))
    space = Space(num_workers=(0, 1, 2, 4, 8), prefetch_factor=(1, 2, 4, 8))
    result = find(program, Setting(1), limits=room(shm=40 * MIB), space=space)
    assert len({refused.why for refused in result.ruled_out}) > 4
    ((those, why),) = search_notes.grouped(result.ruled_out)
    assert len(those) == len(result.ruled_out)
    assert why == {refused.setting: refused.why for refused in result.ruled_out}[min(those)]


@pytest.mark.parametrize(
    ("first", "other", "same"),
    [
        ("1 worker x 150 MiB, 2 batches", "12 workers x 1.5 GiB, 1 batch", True),
        ("115 KiB are free", "1.10 GiB are free, of which a tenth is kept in reserve", True),
        ("115 KiB of memory", "115 KiB of shared memory", False),
    ],
)
def test_kinds_of_reasons(first: str, other: str, same: bool) -> None:
    assert (search_notes.kind_of(first) == search_notes.kind_of(other)) is same


def test_the_smallest_setting_speaks_for_its_kind() -> None:
    ruled_out = [RuledOut(Setting(count).normal(), f"{count} MiB") for count in (8, 2, 4)]
    assert search_notes.grouped(ruled_out) == [
        ([refused.setting for refused in ruled_out], "2 MiB")
    ]
    line = search_notes.never(*search_notes.grouped(ruled_out)[0])
    assert line == "2 workers x prefetch 2 and 2 more: 2 MiB"


def test_one_pair_has_no_interval() -> None:
    assert search_notes.speedup(Speedup(1.5, 1.2, 1.8, 1)).endswith(
        "(one pair of blocks: no interval)"
    )
    assert "1.2 to 1.8, 2 pairs" in search_notes.speedup(Speedup(1.5, 1.2, 1.8, 2))
    wide = search_notes.speedup(Speedup(0.351, 1.6e-5, 7.6e3, 2))
    assert wide == "0.351 times as fast (2 pairs of blocks differ too much to tell)"
    apart = search_notes.speedup(Speedup(2.0, 0.0, 1e6, 0))
    assert apart == "2 times as fast (trials differ too much to tell)"
    own_steps = Checked(Setting(2).normal(), Speedup(1.3, 1.6e-5, 7.6e3, 4), 30, 20)
    assert search_notes.checked(own_steps, Setting(2)) == (
        "1.3 times as fast in its own steps (4 rounds differ too much to tell; 30 batches against "
        "20)"
    )


def test_without_a_file_no_command_is_shown_that_needs_it() -> None:
    result = find(Fake(own=Setting(0)), Setting(2), Setting(4))
    assert "lotus run -- python train.py" in shown(result)
    output = shown(result, None)
    assert "DataLoader(..., num_workers=4" in output
    assert "python train.py" not in output
    assert reporter.document(result, output=None)["settings"] is None


def test_a_stream_that_was_counted_is_ranked_by_its_epoch() -> None:
    """With a second for each worker's start, few of them are best for a short epoch."""

    def searched(counted: tuple[tuple[int, int, int], ...]) -> Result:
        program = Fake(
            own=Setting(0), iterable=True, batches=None, start_s=0.1, wait_s=0.2, counted=counted
        )
        program.step_s = 0.001
        return find(program, *(Setting(count) for count in (2, 4, 8, 16)))

    short = searched(((0, 960, 30), (2, 960, 30)))
    endless = searched(())
    assert endless.best.num_workers == 16
    assert short.best.num_workers in (4, 8)
    assert short.watched.batches == 30
    own = next(row.measurement for row in short.measured if row.measurement.setting == short.own)
    assert own.samples_per_s == pytest.approx(960 / (30 * 0.221), rel=0.05)
    assert short.speedup is not None
    assert endless.speedup is not None
    assert short.speedup.mean < endless.speedup.mean
    assert any("an epoch was counted: 960 samples" in note for note in short.notes)


@pytest.mark.parametrize(("workers", "batches"), [(2, "152 with 2"), (32, "160 with 32")])
def test_that_batches_change_with_workers_is_said_with_both_numbers(
    workers: int, batches: str
) -> None:
    note = search_notes.counted(((0, 1210, 152), (2, 1210, 152)), Setting(8), 8)
    assert "152 batches with no workers and 152" not in note
    note = search_notes.counted(((0, 1210, 151), (2, 1210, 152)), Setting(workers), 8)
    assert (
        f"1,210 samples, which rates refer to. It has 151 batches with no workers and {batches}"
        in note
    )


def test_what_the_first_epoch_gains_is_said_where_the_start_of_workers_counts() -> None:
    def searched(batches: int) -> Result:
        program = Fake(own=Setting(0), batches=batches, start_s=0.2)
        return find(program, Setting(4, persistent_workers=True))

    short = searched(40)
    # 40 batches of 21 ms against the start of four workers and 10 rounds of 20 ms.
    truth = (0.02 + 40 * 0.021) / (0.82 + 39 * 0.005 + 0.04)
    (gain,) = (note for note in short.notes if "the first epoch" in note)
    assert f"is {truth:.1f}" in gain
    assert not any("the first epoch" in note for note in searched(4000).notes)


def test_a_process_that_has_gone_is_no_error() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    limits = limits_of(gone.pid)
    assert limits.cores == limits_of(os.getpid()).cores
    assert limits.memory is not None


def test_a_result_is_shown_as_what_it_says() -> None:
    result = find(Fake(own=Setting(0)), Setting(2), Setting(4))
    assert str(result) == result.explain()
    sentence = "the program's step takes 1.00 ms per batch; with data always ready that is 32,000"
    assert f"step: {sentence} samples/s; 4 workers x prefetch 2 gives " in result.explain()
    assert sentence in shown(result)


def rows_of(result: Result) -> dict[str, str]:
    """What is said of each setting below the table, by its name there, as "4 x 2"."""
    rows, name = {}, ""
    for line in shown(result).partition("\n\n")[2].splitlines():
        if line[:2] == "  " and line[2:3].strip():
            name, _, words = line.strip().partition("  ")
            rows[name] = words.strip()
        elif name and line.startswith("   "):
            rows[name] += " " + line.strip()
    return {name: words for name, words in rows.items() if re.fullmatch(r"\d+ x \d+|0", name)}


def measured(rates: dict[Setting, float], best: Setting, **more: Any) -> Result:
    """A result of these mean rates, each known to 1 %; the own setting has no workers."""
    rows = [
        TrialRow(
            Measurement(setting.normal(), rate, rate * 0.99, rate * 1.01, 1.0), "why it was tried"
        )
        for setting, rate in rates.items()
    ]
    result = find(Fake(own=Setting(0)), Setting(4))
    return dataclasses.replace(result, measured=tuple(rows), best=best.normal(), **more)


def test_a_faster_setting_that_was_not_chosen_says_why() -> None:
    own, two, four, eight = (Setting(count).normal() for count in (0, 2, 4, 8))
    rates = {own: 100.0, two: 150.0, four: 300.0, eight: 303.0}
    none = Speedup(1.0, 1.0, 1.0, 0)

    # What was recommended was refused by the program's own steps.
    check = Checked(four, Speedup(0.39, 0.09, 1.77, 0), 10, 10)
    kept = {"speedup": none, "benefit": False}
    rows = rows_of(measured(rates, own, checked=check, **kept))
    assert "not chosen" not in rows["0"]
    assert f"not chosen: {search_notes.checked(check, four)}" in rows["4 x 2"]
    assert "not chosen: 4 workers x prefetch 2 looked best, but was not" in rows["2 x 2"]
    assert "not chosen: 4 workers x prefetch 2 looked best" in rows["8 x 2"]

    # The cheaper of two that are alike.
    rows = rows_of(measured(rates, four))
    assert "not chosen" not in rows["0"] + rows["2 x 2"] + rows["4 x 2"]
    assert "not chosen: only 1.0% faster than 4 workers x prefetch 2" in rows["8 x 2"]

    # Trials in turn showed nothing, and the rest was never compared.
    compared = ((four, Speedup(1.01, 0.9, 1.1, 3)),)
    rows = rows_of(measured(rates, own, compared=compared, checked=None, **kept))
    assert "measured in turn with the program's own setting, it was not clearly" in rows["4 x 2"]
    assert "not chosen: it was not measured in turn" in rows["2 x 2"]

    # Intervals that overlap.
    rows = rows_of(measured({own: 100.0, two: 101.0, four: 60.0}, own, compared=(), **kept))
    assert "not chosen: only 1.0% faster than no workers" in rows["2 x 2"]
    assert "not chosen" not in rows["4 x 2"]
    few = TrialRow(Measurement(eight, 400.0, 0.0, math.inf, 1.0), "")
    several = measured({own: 100.0, four: 300.0}, four)
    rows = rows_of(dataclasses.replace(several, measured=(*several.measured, few)))
    assert "too few batches of it were measured to compare it with 4 workers" in rows["8 x 2"]
    rows = rows_of(measured({own: 100.0, four: 300.0, two: 301.0}, four))
    assert "its interval overlaps with that of 4 workers" in rows["2 x 2"]


def test_every_faster_setting_says_why_whatever_the_search_did() -> None:
    for seed in range(8):
        program = Fake(own=Setting(seed % 3), step_s=0.01, noise=0.2)
        settings = [Setting(count) for count in (1, 2, 4, 6, 8)]
        result = find(program, *settings, seed=seed)
        passed_over = {
            Setting.from_json(entry["setting"]) for entry in result.as_json()["passed_over"]
        }
        means = result.trials.groupby(["num_workers", "prefetch_factor"], dropna=False)
        rate_of = {key: rows["samples_per_s"].mean() for key, rows in means}
        for setting in passed_over:
            assert rate_of[setting.num_workers, setting.prefetch_factor] > 0
        rows = rows_of(result)
        assert sum("not chosen: " in words for words in rows.values()) == len(passed_over)
