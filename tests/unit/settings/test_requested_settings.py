"""What the files of settings of one program say together, and the code that does the same."""

import dataclasses
from pathlib import Path

import pytest

from lotus.common.errors import LotusError
from lotus.settings import requested_settings, settings_run, share_plan, tuned_file
from lotus.settings.settings_run import ModeOptions
from lotus.settings.share_plan import ModelSignature, SharePlan
from lotus.settings.space import Setting
from lotus.settings.tuned_file import AlternativeUse, Entry, Target

TARGET = Target(0, "train.py:12", "ImageFolder", 1000, "RandomSampler")
COMMAND = ["python", "train.py"]
EXACT, ROUNDED = AlternativeUse("draft_decode", True), AlternativeUse("uint8_tensors", False)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of each kind, which is the current one."""
    monkeypatch.chdir(tmp_path)
    own = Setting(2)
    entries = {
        "tuned.json": Entry(TARGET, Setting(3), own),
        "none.json": Entry(TARGET, own, own),
        "advice.json": Entry(TARGET, own, own, alternatives=(EXACT, ROUNDED)),
    }
    for name, entry in entries.items():
        tuned_file.write(tmp_path / name, tuned_file.found_for([entry], COMMAND))
    plan = SharePlan((24, 8), "lotus", TARGET, ModelSignature(7, "ab"))
    share_plan.write(tmp_path / "balance.json", plan)
    share_plan.write(tmp_path / "other.json", plan)
    return tmp_path


def paths(*names: str) -> list[Path]:
    return [Path(name) for name in names]


def test_without_files_it_is_the_usual_one_or_the_mode_alone(files: Path) -> None:
    assert [*requested_settings.read(()).documents] == [tuned_file.DEFAULT]
    alone = requested_settings.read((), ModeOptions("local"))
    assert (alone.documents, alone.tuned.loaders, alone.changes_anything) == ({}, (), True)


def test_a_plan_of_shares_is_told_from_the_other_files(files: Path) -> None:
    both = requested_settings.read(
        paths("tuned.json", "balance.json"), summed=True, rebalance_every=50
    )
    assert [*both.documents] == paths("tuned.json")
    assert both.shares is not None
    assert both.shares.plan.batch_sizes == (24, 8)
    assert (both.shares.summed, both.shares.rebalance_every) == (True, 50)
    assert both.code_changes() == [
        *tuned_file.code_change(Setting(3)),
        *settings_run.shares_change(both.shares.plan),
    ]


@pytest.mark.parametrize(
    ("names", "mode", "every", "said"),
    [
        (["balance.json", "other.json"], None, 0, "balance.json and other.json both have shares"),
        (["tuned.json"], None, 50, "--rebalance-every needs a plan"),
        (["balance.json"], "local", 0, "--mode local cannot use shares"),
    ],
)
def test_what_cannot_be_applied_together(
    files: Path, names: list[str], mode: str | None, every: int, said: str
) -> None:
    options = None if mode is None else ModeOptions(mode)
    with pytest.raises(LotusError, match=said):
        requested_settings.read(paths(*names), options, rebalance_every=every)


def test_a_file_without_a_gain_says_so(files: Path) -> None:
    requested = requested_settings.read(paths("none.json"))
    note = "none.json: the program's own settings, so it runs as it is"
    assert requested.notes(COMMAND) == [note]
    kept = "# none.json: the program's own settings are kept"
    assert requested.code_changes() == [kept, *tuned_file.code_change(Setting(2))]


def test_differences_are_said_once_for_all_files(files: Path) -> None:
    requested = requested_settings.read(paths("tuned.json", "advice.json"))
    assert requested.other_program(COMMAND) == ""
    other = requested.other_program(["python", "eval.py"])
    assert other == "the settings were found for train.py, but this command runs eval.py"
    together = "tuned.json and advice.json are applied together; what that gains has not been"
    notes = requested.notes(["python", "eval.py"])
    assert notes[:1] == [other]
    assert [note.startswith(together) for note in notes] == [False, True]


def test_alternatives_that_may_change_values_are_left_out_unless_allowed(files: Path) -> None:
    requested = requested_settings.read(paths("advice.json"))
    assert requested.left_out([]) == [ROUNDED.name]
    assert requested.left_out([ROUNDED.name]) == []
    with pytest.raises(LotusError, match="have only draft_decode, uint8_tensors"):
        requested.left_out(["early_crop"])
    with pytest.raises(LotusError, match="have no alternatives"):
        requested_settings.read(paths("tuned.json")).left_out([EXACT.name])
    changes = requested.code_changes()[1:]
    assert [line.partition(":")[0] for line in changes] == ["# draft_decode", "# uint8_tensors"]


def test_an_option_belongs_to_some_modes() -> None:
    given = {"every": 4, "after": None, "groups": None, "staleness": None}
    assert settings_run.mode_of("local", given) == ModeOptions("local", every=4)
    assert settings_run.mode_of(None, dict.fromkeys(given)) is None
    for name in ("async", None):
        with pytest.raises(LotusError, match="--every is for --mode local and --mode hybrid"):
            settings_run.mode_of(name, given)


def test_options_that_have_modes_are_those_of_a_mode() -> None:
    names = {field.name for field in dataclasses.fields(ModeOptions)}
    assert {*settings_run.MODES_OF_OPTION} < names
