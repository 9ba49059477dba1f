"""What opens as a run directory, and what is refused in one line."""

import shutil

import pytest

from lotus.common.errors import LotusError
from lotus.inside.trace.log import log_format
from lotus.reading.run import load
from tests.logs import RunBuilder
from tests.simulation import simulate


def missing(path):
    pass


def a_file(path):
    path.write_text("x")


def empty(path):
    path.mkdir()


def another_folder(path):
    path.mkdir()
    (path / "photo.jpg").write_text("x")


def events_without_manifest(path):
    simulate(path)
    (path / "run.json").unlink()


def manifest_without_events(path):
    RunBuilder(path)


def manifest_alone(path):
    RunBuilder(path)
    shutil.rmtree(path / "events")


def manifest(text):
    def make(path):
        RunBuilder(path)
        (path / "run.json").write_bytes(text)

    return make


def newer_log(path):
    run = RunBuilder(path)
    run.process(100, schema=log_format.SCHEMA + 1)
    run.end()


def manifest_is_a_link(path):
    RunBuilder(path).end()
    (path / "run.json").rename(path.parent / "elsewhere.json")
    (path / "run.json").symlink_to(path.parent / "elsewhere.json")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (missing, "there is no run at .*lotus trace"),
        (a_file, "is a file, not a run directory: give"),
        (empty, "has no files; .*lotus trace"),
        (another_folder, r"is not a run directory: it has no run\.json; .*lotus trace"),
        (events_without_manifest, r"half written: it has no run\.json; .*lotus trace"),
        (manifest_without_events, "has no events yet: wait .*lotus trace"),
        (manifest_alone, "has no events yet: wait .*lotus trace"),
        (manifest(b""), "half written or damaged; .*lotus trace"),
        (manifest(b'{"schema": 1, "lot'), "half written or damaged; .*lotus trace"),
        (manifest(b"[" * 100_000), "half written or damaged; .*lotus trace"),
        (manifest(b"\xff\xfe\x00"), "half written or damaged; .*lotus trace"),
        (manifest(b"[]"), "was not written by lotus; .*lotus trace"),
        (manifest(b"{}"), "was not written by lotus; .*lotus trace"),
        (manifest(b'{"schema": "1"}'), "was not written by lotus; .*lotus trace"),
        (manifest(b'{"schema": true}'), "was not written by lotus; .*lotus trace"),
        (manifest(b'{"schema": 2}'), "has schema 2 .*the lotus that recorded it"),
        (newer_log, "has schema 2 .*the lotus that recorded it"),
        (manifest_is_a_link, "cannot read .*run.json"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_no_run_is_refused_in_one_line(tmp_path, make, message):
    # GIVEN something that is not, or not yet, or no longer a run that can be read
    make(tmp_path / "run")
    # WHEN it is loaded, THEN one line says so and names the next step, with exit code 2
    with pytest.raises(LotusError, match=message) as raised:
        load(tmp_path / "run")
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 2


def test_a_running_program_can_be_read(tmp_path):
    # GIVEN a program that runs still, or was killed together with lotus
    run = RunBuilder(tmp_path / "run")
    simulate(tmp_path, builder=run)
    # WHEN its run is loaded, THEN what there is can be read, also by a path that is a string
    assert len(load(str(run.path)).batches) == 8


def test_a_link_to_a_run_is_a_run(tmp_path):
    # GIVEN a link that the user made to a run
    simulate(tmp_path / "run")
    (tmp_path / "latest").symlink_to("run")
    # WHEN it is loaded, THEN it is that run
    assert len(load(tmp_path / "latest").waits) == 8


# -- losses ----------------------------------------------------------------------------------
