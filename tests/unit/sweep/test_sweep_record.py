"""The directory of a sweep, as it is written and read."""

import json
from pathlib import Path
from typing import Any

import pytest

from lotus.common.errors import LotusError
from lotus.settings.space import Setting
from lotus.sweep import sweep_record

SETTINGS = [Setting(0), Setting(2, 4)]


def _manifest(**changed: Any) -> dict[str, Any]:
    runs = [
        {"setting": 1, "repeat": 0, "directory": "runs/workers2-0", "state": "done",
         "exit_code": 0, "elapsed_ns": 5},
        {"setting": 0, "repeat": 0, "directory": "runs/workers0-0", "state": "failed",
         "exit_code": None, "signal": 9, "elapsed_ns": 7},
        {"setting": 0, "repeat": 1, "directory": "runs/workers0-1", "state": "pending"},
    ]  # fmt: skip
    settings = [setting.as_json() for setting in SETTINGS]
    return {**sweep_content(settings, ["num_workers"], runs), **changed}


def sweep_content(settings: list[Any], varied: list[str], runs: list[Any]) -> dict[str, Any]:
    """A sweep.json, but for its schema, of settings and runs."""
    plan = {"settings": settings, "varied": varied, "repeat": 2, "loader": None, "batches": None,
            "counters": None, "perf": False, "iterable_safe": False}  # fmt: skip
    runs = [{"exit_code": None, "signal": None, **run} for run in runs]
    return {"lotus": "0.2.0", "state": "ended", "command": ["true"], "seed": 3, "plan": plan,
            "level": "op+cpu", "counters": None, "cpu_events": {}, "notes": [],
            "settings": settings, "varied": varied, "runs": runs}  # fmt: skip


def test_a_sweep_reads_as_it_was_written(tmp_path: Path) -> None:
    sweep_record.write(tmp_path, _manifest())
    sweep = sweep_record.load(tmp_path)
    assert sweep_record.is_sweep(tmp_path)
    assert sweep.settings() == SETTINGS
    assert sweep.varied == ("num_workers",)
    assert sweep.runs["state"].tolist() == ["done", "failed", "pending"]
    assert sweep.runs["num_workers"].tolist() == [2, 0, 0]
    assert sweep.runs["exit_code"].isna().tolist() == [False, True, True]
    assert sweep.directories(SETTINGS[1]) == [tmp_path / "runs/workers2-0"]
    assert sweep.directories(SETTINGS[0]) == []
    assert "1 of 3 runs done" in repr(sweep)


def test_where_no_sweep_is_the_error_says_how_to_make_one(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        assert not sweep_record.is_sweep(path)
        with pytest.raises(LotusError, match=r"lotus sweep --workers"):
            sweep_record.load(path)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "[" * 100_000, '{"schema": "1"}', '{"schema": 1}', '{"schema": 9}']
)
def test_a_damaged_manifest_is_a_line(tmp_path: Path, text: str) -> None:
    (tmp_path / sweep_record.NAME).write_text(text)
    with pytest.raises(LotusError) as error:
        sweep_record.load(tmp_path)
    assert str(error.value).isprintable()
    assert "sweep" in str(error.value)


@pytest.mark.parametrize(
    "run",
    [
        {"directory": "../other"},
        {"directory": "/etc"},
        {"directory": "a\0b"},
        {"setting": 7},
        {"setting": True},
        {"repeat": -1},
        {"state": "\x1b[31mred"},
        {"exit_code": "0"},
        {"elapsed_ns": 1.5},
    ],
)
def test_a_run_that_is_not_as_written_is_refused(tmp_path: Path, run: dict[str, Any]) -> None:
    good = _manifest()["runs"][0]
    (tmp_path / sweep_record.NAME).write_text(
        json.dumps({"schema": 1, **_manifest(runs=[good | run])})
    )
    with pytest.raises(LotusError, match="is damaged") as error:
        sweep_record.load(tmp_path)
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    "changed",
    [{"command": 1}, {"command": [["a"]]}, {"notes": "x"}, {"plan": [1]}, {"plan": {"repeat": {}}}],
)
def test_words_and_plan_of_another_kind_are_a_line(tmp_path: Path, changed: dict[str, Any]) -> None:
    sweep_record.write(tmp_path, _manifest(**changed))
    with pytest.raises(LotusError, match="is damaged") as error:
        sweep_record.load(tmp_path)
    assert str(error.value).isprintable()


def test_names_of_settings_tell_apart_what_is_varied() -> None:
    varied = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "start_method")
    assert sweep_record.name_of(Setting(2, 4), ("num_workers",)) == "workers2"
    full = Setting(2, 4, True, False, "spawn")
    assert sweep_record.name_of(full, varied) == "workers2-prefetch4-pin-nopersistent-spawn"
    assert sweep_record.name_of(Setting(0), varied) == "workers0-nopin"


@pytest.mark.parametrize(
    ("name", "value"),
    [("exit_code", 2**64), ("elapsed_ns", 10**400), ("cpu_s", float("inf")), ("repeat", 2**63),
     ("cpu_s", float("nan")), ("signal", -1), ("directory", "runs/\ud800")],
)  # fmt: skip
def test_numbers_beyond_all_bounds_are_a_line(tmp_path: Path, name: str, value: object) -> None:
    manifest = _manifest()
    manifest["runs"][0][name] = value
    (tmp_path / sweep_record.NAME).write_text(json.dumps({"schema": 1, **manifest}))
    with pytest.raises(LotusError, match="damaged"):
        sweep_record.load(tmp_path)
    manifest = _manifest()
    manifest["settings"][1]["num_workers"] = 2**64
    (tmp_path / sweep_record.NAME).write_text(json.dumps({"schema": 1, **manifest}))
    with pytest.raises(LotusError, match="damaged"):
        sweep_record.load(tmp_path)


def test_two_runs_in_one_directory_are_a_line(tmp_path: Path) -> None:
    """It would be read as often as it is named, which costs a file of a megabyte hours."""
    manifest = _manifest()
    good = manifest["runs"][0]
    for other in (good["directory"], f"./{good['directory']}/.", f"{good['directory']}//"):
        runs = [good, {**good, "repeat": 5, "directory": other}]
        content = {"schema": 1, **_manifest(runs=runs)}
        (tmp_path / sweep_record.NAME).write_text(json.dumps(content))
        with pytest.raises(LotusError, match="two runs lie in one directory"):
            sweep_record.load(tmp_path)
