"""Of a large run, frames are given back once tables are made of them, and nothing else changes."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.summary import summarise
from lotus.common.errors import LotusError
from lotus.reading.run import Run, load
from lotus.reading.tables import frame_cache
from lotus.reporters.run import run_document
from tests.logs import MS, START_NS, RunBuilder, Sample
from tests.simulation import simulate

TABLES = ("batches", "waits", "epochs", "workers")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return simulate(tmp_path / "run", workers=2, batches=20, batch_size=4, epochs=2)


def given_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(frame_cache, "MANY", 0)
    run = load(path)
    for name in TABLES:
        getattr(run, name)
    return run


def bytes_of(run: Run) -> int:
    a = run._outline
    return int(a.batch.nbytes + a.wait.nbytes)


def test_most_of_the_frames_is_given_back(path, monkeypatch):
    whole = load(path)
    assert 2 * bytes_of(given_back(path, monkeypatch)) < bytes_of(whole)


def test_frames_stay_until_all_tables_are_made_of_them(path, monkeypatch):
    monkeypatch.setattr(frame_cache, "MANY", 0)
    run = load(path)
    before = bytes_of(run)
    for name in TABLES[:-1]:
        getattr(run, name)
    assert bytes_of(run) == before
    assert len(run.workers)
    assert bytes_of(run) < before


def test_the_frames_of_a_small_run_stay(path):
    run = load(path)
    before = bytes_of(run)
    run_document.document(summarise(run))
    assert bytes_of(run) == before


def test_the_report_is_the_same(path, monkeypatch):
    def report() -> str:
        return json.dumps(run_document.document(summarise(load(path))))

    expected = report()
    monkeypatch.setattr(frame_cache, "MANY", 0)
    assert report() == expected


def everywhere(path: Path) -> Path:
    """A run with operations outside samples, in batches, waits and by themselves, and with pins."""
    run = RunBuilder(path)
    main = run.process(100)
    main.loader(0, num_workers=1)
    main.iterator(0, 0, START_NS, START_NS + MS, [101])
    worker = run.process(101, ppid=100)
    worker.worker(0)
    for batch in range(6):
        at = START_NS + (5 + 10 * batch) * MS
        samples = [Sample(2 * batch + each, 2 * MS, [("Loader", MS)]) for each in range(2)]
        apart = ("Span", at + 4 * MS, MS // 2)
        worker.batch(batch, start_ns=at, samples=samples, collate_ns=MS, loose=[apart])
        worker.sends((0, batch, at + 6 * MS, MS // 10, MS // 20, MS // 10))
        worker.loose(("Elsewhere", at + 7 * MS, MS))
        pins = [(batch, at + 7 * MS, at + 8 * MS)]
        seen = ("Logging", at + 7 * MS, MS // 2)
        main.wait(batch=batch, start_ns=at, end_ns=at + 9 * MS, pins=pins, loose=[seen])
    return run.end()


@pytest.mark.parametrize("table", ["ops", "samples", "intervals", "other_intervals", "exact"])
@pytest.mark.parametrize("make", [everywhere, simulate])
def test_what_is_read_later_is_the_same(make, table, tmp_path, monkeypatch):
    path = make(tmp_path / "run")
    expected = getattr(load(path), table)
    later = getattr(given_back(path, monkeypatch), table)
    assert len(expected)
    pd.testing.assert_frame_equal(later, expected)


def test_frames_that_were_read_again_are_those_of_the_log(tmp_path, monkeypatch):
    path = everywhere(tmp_path / "run")
    expected, again = load(path)._assembly, given_back(path, monkeypatch)._assembly
    for name in ("batch", "wait", "batch_loader", "wait_epoch", "batch_process", "wait_process"):
        assert np.array_equal(getattr(again, name), getattr(expected, name)), name
    for mine, theirs in zip(again.sends, expected.sends, strict=True):
        assert np.array_equal(mine, theirs)


def test_who_has_the_frames_keeps_them(path, monkeypatch):
    monkeypatch.setattr(frame_cache, "MANY", 0)
    run = load(path)
    held = run._assembly
    assert all(len(getattr(run, name)) for name in TABLES)
    assert run._assembly is held


def test_a_log_that_was_cut_off_since_is_said_to_have_changed(path, monkeypatch):
    run = given_back(path, monkeypatch)
    for log in (path / "events").iterdir():
        log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    with pytest.raises(LotusError, match="changed while it was read"):
        len(run.other_intervals)
