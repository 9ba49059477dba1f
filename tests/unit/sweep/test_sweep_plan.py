"""The plan of a sweep, its directory and its command."""

import collections
from pathlib import Path

import pytest

from lotus.common.errors import LotusError
from lotus.settings.space import Setting
from lotus.sweep import sweep_plan, sweep_record, sweep_runner
from lotus.sweep.sweep_plan import SweepPlan, combined


def begun(path: Path, plan: SweepPlan, seed: int | None = 1, *more: str) -> sweep_record.Sweep:
    return sweep_record.load(sweep_plan.begin(path, ["true", *more], plan, seed))


PLAN = SweepPlan(combined({"num_workers": (0, 1, 2, 4)}), ("num_workers",), 4, counters=None)


def test_without_workers_a_setting_is_made_once() -> None:
    values = {"num_workers": (0, 2), "prefetch_factor": (2, 4), "persistent_workers": (True, False)}
    settings = combined(values)
    assert settings[0] == Setting(0)
    assert len(settings) == 1 + 4
    assert set(settings[1:]) == {
        Setting(2, two, False, stay) for two in (2, 4) for stay in (True, False)
    }


def test_pinning_is_a_setting_without_workers_too() -> None:
    settings = combined({"num_workers": (0,), "pin_memory": (True, False)})
    assert settings == (Setting(0, pin_memory=True), Setting(0))


def test_every_round_has_all_settings_in_an_order_of_its_own(tmp_path: Path) -> None:
    runs = begun(tmp_path / "S", PLAN).runs
    assert runs["repeat"].tolist() == sorted([0, 1, 2, 3] * 4)
    rounds = [tuple(mine["setting"]) for _, mine in runs.groupby("repeat")]
    assert all(sorted(places) == [0, 1, 2, 3] for places in rounds)
    assert len(set(rounds)) > 1
    assert len(set(runs["directory"])) == 16
    assert set(runs["state"]) == {"pending"}


def test_the_order_is_that_of_the_seed(tmp_path: Path) -> None:
    orders = collections.defaultdict(list)
    for number, seed in enumerate((1, 1, 2)):
        sweep = begun(tmp_path / str(number), PLAN, seed)
        orders[seed].append(sweep.runs["setting"].tolist())
        assert sweep.manifest["seed"] == seed
    assert orders[1][0] == orders[1][1] != orders[2][0]


def test_a_seed_that_is_not_given_is_drawn_and_kept(tmp_path: Path) -> None:
    seeds = {begun(tmp_path / str(number), PLAN, None).manifest["seed"] for number in range(5)}
    assert len(seeds) > 1
    # And does not have to be said again.
    assert begun(tmp_path / "0", PLAN, None).manifest["seed"] in seeds


def test_the_same_plan_finds_its_sweep_again(tmp_path: Path) -> None:
    before = begun(tmp_path, PLAN)
    assert begun(tmp_path, PLAN).manifest == before.manifest


@pytest.mark.parametrize(
    ("plan", "seed", "more", "words"),
    [
        (PLAN, 1, ["--lr"], "another command"),
        (PLAN, 2, [], "its seed is 1"),
        (SweepPlan(PLAN.settings, PLAN.varied, 5, counters=None), 1, [], "repeat are not the same"),
        (SweepPlan(PLAN.settings, PLAN.varied, 4, counters="auto"), 1, [], "counters"),
    ],
)
def test_another_plan_is_refused(
    tmp_path: Path, plan: SweepPlan, seed: int, more: list[str], words: str
) -> None:
    begun(tmp_path, PLAN)
    with pytest.raises(LotusError, match=words):
        begun(tmp_path, plan, seed, *more)


def test_what_is_no_sweep_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(LotusError, match="choose another directory"):
        begun(tmp_path, PLAN)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_command_that_another_user_wrote_has_to_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = begun(tmp_path, PLAN)
    assert sweep_plan.command_of(sweep, []) == ["true"]
    monkeypatch.setattr("os.geteuid", lambda: 1 << 20)
    with pytest.raises(LotusError, match="another user"):
        sweep_plan.command_of(sweep, [])
    assert sweep_plan.command_of(sweep, ["true"]) == ["true"]


def test_a_resumed_command_is_the_one_that_was_swept(tmp_path: Path) -> None:
    sweep = begun(tmp_path, PLAN)
    with pytest.raises(LotusError, match="another command"):
        sweep_plan.command_of(sweep, ["false"])


def test_a_damaged_sweep_does_not_go_on(tmp_path: Path) -> None:
    sweep = begun(tmp_path, PLAN)
    sweep_record.write(tmp_path, {**sweep.manifest, "plan": {"loader": None}})
    with pytest.raises(LotusError, match="damaged: plan has no settings"):
        sweep_runner.run(tmp_path, ["true"])


def test_a_sweep_goes_on_where_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(tmp_path / "S", PLAN)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LotusError, match="first: cd "):
        sweep_runner.run(tmp_path / "S", ["true"])


def test_the_last_lines_of_a_log_are_not_all_of_it(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(b"first\n" * 100_000 + b"\xff\nlast  \n\n\n")
    assert sweep_runner.last_lines(log, 2) == ("\ufffd", "last")
    assert sweep_runner.last_lines(tmp_path / "none") == ()
