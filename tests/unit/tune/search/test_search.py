"""The search, on a program that is a formula with a clock of its own."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from lotus.common.errors import LotusError
from lotus.inside.tune.candidates.trial_requests import Measure
from lotus.settings import tuned_file
from lotus.settings.space import Setting, Space
from lotus.tune.program.remote_program import watched_from
from lotus.tune.search.limits.machine_limits import MachineLimits
from lotus.tune.search.limits.safety import Safety
from lotus.tune.search.outcome import search_notes
from lotus.tune.search.search import SearchPlan, SearchProgress, search
from tests.unit.tuned_program import MIB, Asks, Fake, closed_and_in_time, find, room


def test_what_is_faster_is_found_confirmed_and_explained() -> None:
    program = Fake(own=Setting(0))
    seen: list[SearchProgress] = []
    result = find(program, Setting(1), Setting(2), Setting(4), on_progress=seen.append)
    assert result.best == Setting(4).normal()
    assert result.own == Setting(0)
    assert result.benefit
    assert result.speedup is not None
    # 21 ms a batch against 5; the start of 4 workers and their end, 0.26 s, come once in an epoch.
    truth = (0.02 + 1000 * 0.021) / (0.22 + 0.04 + 999 * 0.005)
    assert result.speedup.low <= truth * 1.02
    assert result.speedup.high >= truth * 0.98
    assert result.speedup.pairs >= 3
    assert result.speedup.precision <= 0.02
    assert result.settings_tried == 4
    assert not result.interrupted
    assert {progress.doing for progress in seen} == {"measuring", "confirming"}
    explanation = result.explain()
    assert "4 workers x prefetch 2 instead of no workers" in explanation
    assert "DataLoader(..., num_workers=4, prefetch_factor=2)" in explanation
    assert (
        "random augmentations get other random numbers with 4 workers than with no workers"
        in explanation
    )
    closed_and_in_time(program, 60)


@pytest.mark.parametrize(("fewer", "workers"), [(True, {0, 1, 2}), (False, {0, 1})])
def test_a_step_on_several_threads_gets_a_trial_of_what_one_thread_needs(
    fewer: bool, workers: set[int]
) -> None:
    program = Fake(own=Setting(0), cores=2.0, step_s=0.01, slower_step=3.0)
    program.watched = dataclasses.replace(program.watched, threads=2, step_cpu_s=(0.018,) * 40)
    result = find(program, Setting(1), check_follows=fewer)
    assert set(result.trials["num_workers"]) == workers
    assert (search_notes.FOR_FEWER_THREADS in set(result.trials["why"])) == fewer
    assert result.best == Setting(0)
    closed_and_in_time(program, 60)


def test_each_measurement_is_a_row_with_its_interval() -> None:
    program = Fake(own=Setting(0))
    result = find(program, Setting(2))
    table = result.trials
    first = table.iloc[0]
    assert first["num_workers"] == 0
    assert first["low"] < first["samples_per_s"] < first["high"]
    assert first["samples_per_s"] == pytest.approx(32 / 0.021, rel=0.02)
    assert first["memory_bytes"] == 500 * MIB
    assert set(table["failed"]) == {""}
    assert (table["why"] == "confirming, in turn with the other").sum() >= 6
    # Blocks of a setting alternate with those of the other one.
    confirmed = list(table["num_workers"])[2:]
    assert all(set(confirmed[at : at + 2]) == {0, 2} for at in range(0, len(confirmed) - 1, 2))


def test_a_strategy_is_told_what_trials_observed() -> None:
    asks = Asks(Setting(2))
    program = Fake(own=Setting(0), wait_s=0.06)
    search(program, SearchPlan(strategy=asks), limits=room(), clock=lambda: program.now)
    own, two = asks.measurements[:2]
    assert own.observed is not None
    assert two.observed is not None
    assert own.observed.capacity_s == pytest.approx(0.08, rel=0.05)
    assert two.observed.capacity_s == pytest.approx(0.04, rel=0.05)
    assert two.observed.cpu_s == pytest.approx(0.02)
    assert two.observed.startup_s == pytest.approx(0.18)
    problem = asks.problem
    assert problem is not None
    assert problem.step_s == pytest.approx(0.001)
    assert problem.step_cores == pytest.approx(1.0)
    assert problem.batches == 1000
    assert problem.samples == 32
    # The wait is three times the CPU time, so four times as many workers as cores have work.
    assert max(problem.space.num_workers) == 32
    assert problem.space.pin_memory == (False,)
    assert Setting(0) in problem.space


def test_a_loader_that_only_computes_gets_no_more_than_twice_the_cores() -> None:
    asks = Asks()
    program = Fake(own=Setting(3, prefetch_factor=5), accelerator="cuda")
    plan = SearchPlan(strategy=asks, vary=("in_order",))
    search(program, plan, limits=room(), clock=lambda: program.now)
    assert asks.problem is not None
    space = asks.problem.space
    assert space.num_workers == (0, 1, 2, 3, 4, 6, 8)
    assert space.prefetch_factor == (1, 2, 4, 5, 8, 16)
    assert space.pin_memory == (False, True)
    assert space.in_order == (None, False)
    assert space.start_method == (None,)


def test_a_slow_consumer_has_no_benefit_and_learns_how_few_workers_would_do() -> None:
    program = Fake(own=Setting(8), step_s=0.05, noise=0.005, start_s=0.0)
    result = find(program, Setting(1), Setting(2), Setting(4))
    assert not result.benefit
    assert result.best == Setting(8).normal()
    explanation = result.explain()
    assert "1 worker x prefetch 2 would do as well as 8 workers x prefetch 2" in explanation
    assert "DataLoader(" not in explanation


def test_the_own_setting_stays_where_nothing_cheaper_is_as_fast() -> None:
    program = Fake(own=Setting(4), noise=0.005, start_s=0.0)
    result = find(program, Setting(1), Setting(2), Setting(8))
    assert not result.benefit
    assert result.best == result.own == Setting(4).normal()
    assert "the program keeps its own, 4 workers x prefetch 2" in result.explain()


def test_threads_of_workers_that_fight_are_limited_first() -> None:
    own = Setting(2)
    program = Fake(own=own, fighting=5.0)
    result = search(program, limits=room(), clock=lambda: program.now)
    settings = list(dict.fromkeys(program.opened))
    assert settings[0] == own.normal()
    assert settings[1] == dataclasses.replace(own.normal(), threads=1)
    assert result.best.threads == 1
    assert result.benefit


def test_a_budget_for_one_trial_does_not_say_that_nothing_helps() -> None:
    slow = Fake(own=Setting(0), cpu_s=3.0)
    result = find(slow, Setting(1), Setting(2), budget_s=30.0)
    assert (result.settings_tried, result.best, result.benefit) == (1, result.own, False)
    explanation = result.explain()
    assert "there was time for the program's own setting only, no workers" in explanation
    assert "next: more time: lotus tune --budget 90s" in explanation
    assert "no benefit" not in explanation
    assert result.as_json()["out_of_time"] is True
    assert find(Fake(own=Setting(4)), Setting(1)).as_json()["out_of_time"] is False


def test_persistent_workers_are_worked_out_without_a_trial_of_their_own() -> None:
    program = Fake(own=Setting(4), batches=20, start_s=0.3)
    result = find(program, Setting(4, persistent_workers=True))
    assert result.best == Setting(4, prefetch_factor=2, persistent_workers=True)
    assert result.settings_tried == 1
    assert result.benefit
    assert result.speedup is not None
    batch = 0.005
    truth = (1.22 + 0.04 + 19 * batch) / (20 * batch)  # nothing but batches, from the second on
    assert result.speedup.mean == pytest.approx(truth, rel=0.05)
    # Its start matters most here, so it was started again for each pair.
    assert len(program.opened) >= 4


def test_without_steps_the_rate_is_that_of_the_loader() -> None:
    program = Fake(own=Setting(0), step_s=0.1)
    asks = Asks(Setting(4))
    result = find(program, strategy=asks, objective="throughput")
    assert not any(step for _, step in program.blocks)
    assert result.benefit
    assert asks.problem is not None
    assert asks.problem.step_s == 0
    assert asks.measurements[0].samples_per_s == pytest.approx(32 / 0.02, rel=0.03)


def test_what_does_not_fit_is_never_opened_and_says_its_terms() -> None:
    program = Fake(own=Setting(1), wait_s=0.06)
    result = find(program, Setting(8), Setting(64, prefetch_factor=16), limits=room(1 << 30))
    assert all(setting.num_workers < 9 for setting in program.opened)
    reasons = {refused.setting: refused.why for refused in result.ruled_out}
    why = reasons[Setting(64, prefetch_factor=16)]
    assert "64 workers x prefetch 16 hold up to 1,024 batches of 4.00 MiB" in why
    assert "1024 MiB are free" in why
    assert "never tried" in result.explain()
    # Not asked for by the strategy, and said nevertheless.
    assert Setting(8, prefetch_factor=16) in {refused.setting for refused in result.ruled_out}
    assert all(Setting(8).normal() != refused.setting for refused in result.ruled_out)


def test_what_could_not_be_checked_is_said_and_a_program_that_ended_is_no_fault() -> None:
    unknown = dataclasses.replace(room(), memory=None)
    notes = find(Fake(own=Setting(1)), limits=unknown).notes
    assert any("how much memory is free is not known" in note for note in notes)
    program = Fake(own=Setting(1))
    readings = iter([room()])

    def read() -> MachineLimits:
        for reading in readings:
            return reading
        raise ProcessLookupError

    safety = Safety(program.watched, read)
    program.open(Setting(1).normal(), 10)
    safety.learn(
        Setting(1), program.measure(Setting(1).normal(), Measure(1, 8, step=False, limit_s=10))
    )
    assert safety.beside(Setting(2), []) == ""


def test_candidates_that_are_open_fit_together() -> None:
    # Each of 8 workers x 100 MiB, and their batches: one fits in 1.3 GiB, two do not.
    program = Fake(own=Setting(7), wait_s=0.06)
    result = find(program, Setting(8), Setting(6), limits=room(1300 * MIB))
    assert result.speedup is not None
    assert len(program.opened) > 3  # they took turns
    assert all(len(live) == 1 for live in program.most_live)
    roomy = Fake(own=Setting(7), wait_s=0.06, start_s=0.0)
    find(roomy, Setting(8), Setting(6))
    assert len(roomy.opened) == 3


def test_no_check_in_its_own_steps_follows_a_search_that_leaves_them_out() -> None:
    searched = []
    for follows in (False, True):
        program = Fake(own=Setting(0), noise=0.3)  # comparisons end later than they are decided
        find(program, Setting(2), check_follows=follows, objective="throughput")
        searched.append(program.blocks)
    assert searched[0] == searched[1]


def test_a_loader_is_described_by_what_its_fields_may_hold() -> None:
    message = {"loader": {"number": "x"}, "setting": Setting(0).as_json()}
    with pytest.raises(ValueError, match="number must be a whole number or null, not a text"):
        watched_from(message)


def test_blocks_of_slow_loaders_have_a_batch_of_each_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = Fake(own=Setting(8), wait_s=6.0)
    asked: list[tuple[int, int]] = []
    measure = program.measure

    def recorded(setting: Setting, request: Measure) -> Any:
        asked.append((request.least, setting.num_workers))
        return measure(setting, request)

    monkeypatch.setattr(program, "measure", recorded)
    find(program, Setting(12))
    assert {workers for _, workers in asked} >= {8}
    assert all(least > workers for least, workers in asked)


def test_nothing_large_is_tried_before_it_is_known_what_a_worker_takes() -> None:
    program = Fake(own=Setting(4), fails={4: "a worker was killed", 1: "a worker was killed"})
    result = find(program, Setting(30, prefetch_factor=128), Setting(2))
    assert [setting.num_workers for setting in program.opened] == [4, 1, 2]
    assert result.best == Setting(2).normal()
    assert result.speedup is None
    assert not result.benefit
    assert any("not known" in refused.why for refused in result.ruled_out)
    assert "its own setting, " not in result.explain().splitlines()[0] or "was not measured" in (
        result.explain()
    )


def test_a_trial_that_fails_is_a_row_and_the_search_goes_on() -> None:
    program = Fake(own=Setting(0), fails={2: "a worker was killed by signal 9"})
    result = find(program, Setting(2), Setting(2, persistent_workers=True), Setting(4))
    assert result.best.num_workers == 4
    failed = result.trials[result.trials["failed"] != ""]
    assert list(failed["failed"]) == ["a worker was killed by signal 9"]
    opened = [setting.num_workers for setting in program.opened]
    assert opened.count(2) == 1  # not again for its twin
    assert "failed: a worker was killed by signal 9" in result.explain()


@pytest.mark.parametrize(("same", "tried"), [("", {0, 3, 4}), ("it gave 640 instead of 64", {0})])
def test_an_iterable_gets_other_workers_only_where_its_samples_stay(
    same: str, tried: set[int]
) -> None:
    program = Fake(own=Setting(0), iterable=True, same=same, batches=None)
    result = find(program, Setting(3), Setting(4))
    assert program.compared == [Setting(2).normal()]
    assert {setting.num_workers for setting in program.opened} == tried
    assert result.iterable_safe == (same == "")
    if same:
        assert any("num_workers stays 0" in note and same in note for note in result.notes)
        assert all("num_workers stays 0" in refused.why for refused in result.ruled_out)
        assert {refused.setting.num_workers for refused in result.ruled_out} >= {3, 4}


def test_ctrl_c_leaves_the_best_until_then() -> None:
    # The blocks of the own setting and of 1 and 4 workers, two each, then the first that confirms.
    for at, best in ((0, 0), (3, 0), (6, 4), (9, 4)):
        program = Fake(own=Setting(0), interrupt_at=at)
        result = find(program, Setting(1), Setting(4))
        assert result.interrupted, at
        assert result.best.num_workers == best, at
        assert not program.live
        assert result.explain()
        assert json.dumps(result.as_json(), allow_nan=False)


def test_a_budget_that_is_too_small_says_so_and_changes_nothing() -> None:
    program = Fake(own=Setting(0), cpu_s=4.0)
    result = find(program, Setting(4), budget_s=1.0)
    assert result.best == result.own
    assert not result.benefit
    assert any("budget" in note for note in result.notes)
    closed_and_in_time(program, 1)


def test_a_setting_whose_queue_takes_too_long_to_fill_is_not_tried() -> None:
    program = Fake(own=Setting(1), batch_bytes=1000)
    result = find(program, Setting(8, prefetch_factor=2048), budget_s=30)
    assert [setting.num_workers for setting in program.opened] == [1]
    reasons = {refused.setting: refused.why for refused in result.ruled_out}
    why = reasons[Setting(8, prefetch_factor=2048)]
    assert "prefetching its 16,384 batches takes at least 81.9 s before each block" in why
    assert program.now - 100 < 30


def test_the_page_cache_and_a_program_unlike_its_trials_are_said() -> None:
    program = Fake(own=Setting(0), read_once=8 * MIB, slower_watched=1.5)
    notes = find(program, Setting(4)).notes
    assert any(
        "the first trial read 8.00 MiB per batch from storage, later ones 0" in n for n in notes
    )
    assert any("1,016 samples/s while it was watched" in n and "50% more" in n for n in notes)
    quiet = find(Fake(own=Setting(0)), Setting(4)).notes
    assert not any("page cache" in note or "watched" in note for note in quiet)


def test_it_becomes_a_document_that_lotus_run_reads(tmp_path: Any) -> None:
    program = Fake(own=Setting(2))
    result = find(program, Setting(4))
    path = tmp_path / "tuned.json"
    tuned_file.write(path, result.tuned(["python", "train.py"]))
    read = tuned_file.read(path)
    entry = read.loaders[0]
    assert entry.setting == result.best
    assert entry.before == Setting(2, start_method="fork")
    assert entry.loader == program.watched.loader
    assert read.torch == "2.14.1"
    assert len(read.evidence["trials"]) == len(result.trials)
    with pytest.raises(LotusError, match="lotus run"):
        result.loader()


@pytest.mark.parametrize(
    "options",
    [{"strategy": "best"}, {"objective": "speed"}, {"budget_s": 0}, {"vary": ("batch_size",)}],
)
def test_what_cannot_be_searched_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(LotusError):
        find(Fake(Setting(0)), **options)


@pytest.mark.parametrize("strategy", ["lotus", "adapt", "random"])
def test_every_strategy_runs_on_it(strategy: str) -> None:
    program = Fake(own=Setting(0), start_s=0.01, wait_s=0.02)
    space = Space((0, 1, 2, 4, 8), (1, 2, 4), persistent_workers=(False, True))
    result = find(program, strategy=strategy, space=space)
    assert result.benefit
    assert result.strategy == strategy
    closed_and_in_time(program, 60)
    if strategy == "lotus":
        least = min(program.batch_s(setting, step=True) for setting in space.settings())
        assert program.batch_s(result.best, step=True) <= 1.03 * least
        assert result.settings_tried <= 5
        assert result.predicted is not None


def test_what_a_strategy_leaves_out_by_itself_is_said() -> None:
    class Leaves(Asks):
        def ruled_out(self) -> list[tuple[str, str]]:
            return [("9 settings", "they are predicted to be slower")]

    result = find(Fake(own=Setting(0)), strategy=Leaves(Setting(4)))
    assert result.pruned == (("9 settings", "they are predicted to be slower"),)
    assert "left out: 9 settings: they are predicted to be slower" in result.explain()


def test_the_package_is_called_and_stays_a_package() -> None:
    import lotus
    import lotus.tune.simulation.loader_simulation
    from lotus import tune

    assert tune is lotus.tune
    assert lotus.tune.simulation.loader_simulation.simulate is not None
    assert "tune" in dir(lotus)
    with pytest.raises(LotusError, match="a list cannot be tuned"):
        tune([1, 2])
    with pytest.raises(LotusError, match="needs a step"):
        tune([1, 2], objective="train")
    with pytest.raises(LotusError, match="not one of train, throughput"):
        tune([1, 2], objective="speed")
