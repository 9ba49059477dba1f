"""Commands that name no run take the newest one, and say which."""

import json
import os
import shutil
import webbrowser
from pathlib import Path

import pytest

from lotus import cli
from lotus.commands.common import options
from lotus.common.errors import LotusError
from lotus.reading import recent_runs
from tests.simulation import simulate

DAY = 86_400_000_000_000


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(name: str, day: int, **manifest: object) -> Path:
    """A run directory of lotus-runs/ with nothing but a run.json and a folder of logs."""
    path = Path("lotus-runs", name)
    (path / "events").mkdir(parents=True)
    record = {
        "schema": 1, "lotus": "0", "state": "ended", "exit_code": 0, "start_wall_ns": day * DAY,
        "command": ["python", f"{name.partition('-')[0]}.py"],
    }  # fmt: skip
    (path / "run.json").write_text(json.dumps(record | manifest))
    return path


def recorded(name: str, day: int) -> Path:
    """One that can be read."""
    path = simulate(Path("lotus-runs", name))
    record = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(record | {"start_wall_ns": day * DAY}))
    return path


def test_the_newest_was_begun_last_whatever_was_written_last() -> None:
    old, new = made("train-1", 1), made("train-2", 2)
    os.utime(old / "run.json", ns=(4 * DAY, 4 * DAY))
    os.utime(new / "run.json", ns=(3 * DAY, 3 * DAY))
    assert recent_runs.newest("report") == (new, None)
    Path("lotus-runs/notes.txt").write_text("no run")
    Path("lotus-runs/empty").mkdir()
    damaged = made("train-3", 3)
    (damaged / "run.json").write_text("{")
    os.utime(damaged / "run.json", ns=(DAY // 2, DAY // 2))
    assert recent_runs.newest("report") == (new, None)


def test_a_sweep_is_newest_for_those_who_take_sweeps() -> None:
    run, sweep = made("train-1", 1), Path("lotus-runs/train-2")
    sweep.mkdir()
    (sweep / "sweep.json").write_text(json.dumps({"start_wall_ns": 2 * DAY}))
    assert recent_runs.newest("report", sweeps=True) == (sweep, None)
    assert recent_runs.newest("top") == (run, None)


def test_a_run_in_which_no_loader_was_iterated_is_passed_over(
    capfd: pytest.CaptureFixture[str],
) -> None:
    whole, twin = made("train-1", 1), made("train-2", 2)
    empty = made("train-3", 3)
    (empty / "events").rmdir()
    assert recent_runs.newest("map") == (twin, empty)
    assert recent_runs.two_newest() == (whole, twin)
    assert options.newest_run("map") == twin
    assert f"{twin} (in {empty}, which is newer, no Data" in capfd.readouterr().err
    running = made("train-4", 4, state="running", exit_code=None)
    (running / "events").rmdir()
    assert recent_runs.newest("top") == (running, None)  # it may not have begun its loop
    for path in (whole, twin, running):
        shutil.rmtree(path)
    assert recent_runs.newest("map") == (empty, None)


def test_two_are_of_one_program_and_ended_well() -> None:
    wanted = [made("train-1", 1), made("train-3", 3)]
    made("eval-2", 2)
    made("train-4", 4, exit_code=1)
    made("train-5", 5, state="running", exit_code=None)
    assert list(recent_runs.two_newest()) == wanted


def test_no_two_runs_say_what_there_is(here: Path) -> None:
    with pytest.raises(
        LotusError, match=r"none in lotus-runs/ of this directory .*: lotus compare"
    ):
        recent_runs.two_newest()
    made("train-1", 1, exit_code=3)
    with pytest.raises(LotusError, match="none that ended with exit code 0 in lotus-runs/"):
        recent_runs.two_newest()
    made("eval-2", 2)
    made("train-3", 3)
    with pytest.raises(LotusError, match=r"train-3 is the only run of train .*lotus-runs/eval-2"):
        recent_runs.two_newest()


@pytest.mark.parametrize(
    "words", [["report"], ["top", "--once"], ["export", "--format", "csv", "-o", "tables"]]
)
def test_without_a_run_the_newest_is_taken(
    words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    made("train-1", 1)
    path = recorded("train-2", 2)
    assert cli.main(words) == 0
    assert f"lotus: the newest run: {path}" in capfd.readouterr().err


@pytest.mark.parametrize("verb", ["report", "top", "map", "export", "compare"])
def test_where_there_is_none_the_line_to_type_is_said(
    verb: str, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ["--format", "csv"] if verb == "export" else []
    assert cli.main([verb, *options]) == 2
    errors = capfd.readouterr().err
    assert "no run was given" in errors
    assert f"lotus {verb} " + ("A B" if verb == "compare" else "RUN") in errors


def test_map_takes_the_newest_too(capfd: pytest.CaptureFixture[str]) -> None:
    path = recorded("train-2", 2)
    assert cli.main(["map"]) == 2  # nothing was counted in it
    errors = capfd.readouterr().err
    assert f"the newest run: {path}" in errors
    assert f"{path} has neither samples nor counters" in errors


def test_two_newest_are_compared(capfd: pytest.CaptureFixture[str]) -> None:
    newer, older = recorded("train-2", 2), recorded("train-1", 1)
    assert cli.main(["compare"]) == 0
    out, errors = capfd.readouterr()
    assert f"A {older}, B {newer}" in errors
    assert out.startswith(f"A: {older}\nB: {newer}\n")


def test_the_page_goes_into_the_run(capfd: pytest.CaptureFixture[str], here: Path) -> None:
    path = recorded("train-2", 2)
    assert cli.main(["report", "--html"]) == 0
    assert f"written: {path}/report.html (open it in a browser)" in capfd.readouterr().out
    assert (path / "report.html").stat().st_size > 1000
    (path / "report.html").unlink()
    assert cli.main(["report", "--html", str(path)]) == 0  # the word after --html is the run
    assert (path / "report.html").exists()
    assert cli.main(["report", "--html", "page.html"]) == 0
    assert (here / "page.html").exists()


def test_the_browser_is_opened_where_there_is_a_display(
    capfd: pytest.CaptureFixture[str], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recorded("train-2", 2)
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda uri: not opened.append(uri))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    assert cli.main(["report", "--open"]) == 0
    page = here / path / "report.html"
    assert f"there is no display here; open it in a browser: {page}" in capfd.readouterr().err
    assert opened == []
    monkeypatch.setenv("DISPLAY", ":0")
    assert cli.main(["report", str(path), "--open"]) == 0
    assert opened == [page.as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda uri: False)
    assert cli.main(["report", str(path), "--open"]) == 0
    assert f"no browser could be started; open it in a browser: {page}" in capfd.readouterr().err
