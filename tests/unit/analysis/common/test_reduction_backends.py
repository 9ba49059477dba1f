"""A run that several processes read has the report of one that one process reads."""

import json
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import lotus
from lotus import cli
from lotus.analysis.common import durations, reduction_backends
from lotus.analysis.common.run_contents import one_process, partial_of
from lotus.analysis.summary import summarise
from lotus.common.errors import LotusError
from lotus.common.version import __version__
from lotus.reading.tables import table_pieces
from lotus.reporters.run import run_document
from tests.simulation import simulate


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    """Three epochs of a loader with two workers."""
    path = tmp_path_factory.mktemp("parts") / "run"
    return simulate(path, workers=2, batches=20, batch_size=8, epochs=3)


def report(path: Path, partials=one_process) -> str:
    run = lotus.load(path)
    document = run_document.document(summarise(run, partials=partials))
    assert len(run.pieces) > 10
    return json.dumps(document)


def in_another_order(seed: int):
    """Reduces all parts, which come in some other order than theirs."""

    def partials(parts):
        places = list(range(len(parts)))
        random.Random(seed).shuffle(places)
        assert places != sorted(places)
        for place in places:
            yield partial_of(parts, place)

    return partials


def test_partial_results_make_one_report_in_any_order(path, monkeypatch) -> None:
    monkeypatch.setattr(table_pieces, "ROWS", 200)
    wanted = report(path)
    for seed in range(5):
        assert report(path, in_another_order(seed)) == wanted


def test_the_order_of_histograms_changes_at_most_the_last_digits_of_a_deviation(
    path, monkeypatch
) -> None:
    monkeypatch.setattr(table_pieces, "ROWS", 200)
    monkeypatch.setattr(durations, "EXACT", 300)

    def split(text: str) -> tuple[dict, list[float]]:
        document, deviations = json.loads(text), []
        for operation in document["loaders"][0]["operations"]:
            assert 0 < operation["quantile_error"] <= 0.005
            deviations.append(operation.pop("std_ns"))
        return document, deviations

    wanted, deviations = split(report(path))
    for seed in range(5):
        document, others = split(report(path, in_another_order(seed)))
        assert document == wanted
        assert others == pytest.approx(deviations, rel=1e-12)


@pytest.fixture
def joblib():
    """joblib, whose processes and threads would stay for minutes."""
    module = pytest.importorskip("joblib")
    yield module
    module.externals.loky.get_reusable_executor().shutdown(wait=True, kill_workers=True)


def test_processes_of_this_machine_make_the_report_of_one(path, monkeypatch, joblib) -> None:
    monkeypatch.setattr(table_pieces, "ROWS", 200)
    read = []

    def counted(parts):
        for partial in reduction_backends.of_processes(2)(parts):
            read.append(partial)
            yield partial

    assert report(path, counted) == report(path)
    assert len(read) == len(lotus.load(path).pieces)


def test_compare_reads_each_run_as_it_is_told(path, monkeypatch, capsys) -> None:
    read = []

    def counted(parts):
        read.append(len(parts))
        yield from one_process(parts)

    words = ["compare", str(path), str(path), "--json"]
    assert cli.main(words) == 0
    wanted = capsys.readouterr().out
    monkeypatch.setattr(reduction_backends, "of_processes", lambda count: counted)
    assert cli.main([*words, "--backend", "processes"]) == 0
    assert capsys.readouterr().out == wanted
    assert len(read) == 2


def test_another_run_at_the_path_is_not_taken_for_it(path, tmp_path, monkeypatch) -> None:
    source = reduction_backends._source(lotus.load(path).pieces)
    assert source is not None
    assert len(source.parts()) == len(lotus.load(path).pieces)
    simulate(tmp_path / "other", workers=2, batches=21, batch_size=8, epochs=3)
    with pytest.raises(LotusError, match="changed while it was read"):
        replace(source, path=str(tmp_path / "other")).parts()
    with pytest.raises(LotusError, match=f"a worker has lotus {__version__}, and this is 0"):
        replace(source, version="0").parts()


def test_what_only_this_process_has_is_read_by_it(path) -> None:
    run = lotus.load(path)
    assert len(run.ops)  # from here on its parts are tables in memory
    wanted = report_of_tables(run, one_process)
    assert (
        report_of_tables(run, lambda parts: reduction_backends._read(parts, pytest.fail)) == wanted
    )


def report_of_tables(run, partials) -> str:
    return json.dumps(run_document.document(summarise(run, partials=partials)))


def test_a_small_run_starts_nothing(path, monkeypatch) -> None:
    monkeypatch.setattr(reduction_backends.os, "sched_getaffinity", lambda pid: set(range(64)))
    run = lotus.load(path)
    assert reduction_backends.chosen(None, None)(run) is one_process
    assert reduction_backends.chosen("one", None)(run) is one_process


def test_a_large_run_is_read_by_one_process_where_joblib_is_missing(path, monkeypatch) -> None:
    monkeypatch.setattr(reduction_backends.os, "sched_getaffinity", lambda pid: set(range(64)))
    monkeypatch.setattr(reduction_backends, "LARGE", 1)
    monkeypatch.setitem(sys.modules, "joblib", None)
    run = lotus.load(path)
    assert reduction_backends.chosen(None, None)(run) is one_process
    with pytest.raises(LotusError, match="pip install joblib"):
        reduction_backends.chosen("processes", None)


@pytest.mark.parametrize(("backend", "scheduler"), [("dask", None), (None, "tcp://x:1")])
def test_a_cluster_and_its_address_go_together(backend, scheduler) -> None:
    with pytest.raises(LotusError, match="--backend dask and --scheduler go together"):
        reduction_backends.chosen(backend, scheduler)
