"""A report is computed from pieces of a run: figures as of whole tables, in less memory."""

import json
import weakref
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

import lotus
from lotus.analysis.batches import usual_durations
from lotus.analysis.common import durations, run_contents
from lotus.analysis.common.durations import ERROR
from lotus.analysis.common.scope import TABLES
from lotus.analysis.summary import summarise
from lotus.compare.comparison import Side, compare
from lotus.reading.tables import table_pieces
from lotus.reporters.compare import comparison_report
from lotus.reporters.run import run_document, run_page
from tests.logs import MS
from tests.simulation import simulate
from tools.bench.large_runs import write_run


class Tables(SimpleNamespace):
    """A run that is tables in memory, as those have it who analyse their own data."""


def in_tables(path: Path) -> Tables:
    run = lotus.load(path)
    more = ("path", "manifest", "loaders", "operations", "samples", "ops", "lost", "unseen")
    more += (
        "open_waits",
        "blocking",
        "places",
        "machine",
        "memory",
        "children",
        "own_code",
        "stack_times",
        "notes",
        "processes",
    )
    more += (
        "first_batches",
        "sample_digests",
        "full_collections",
        "program_cpu_ns",
        "syncs",
        "models",
    )
    return Tables(**{name: getattr(run, name) for name in {*more, *TABLES}})


def report(run: object) -> dict:
    return run_document.document(summarise(run))


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """A run of 400,000 events."""
    path = tmp_path_factory.mktemp("large") / "run"
    write_run(path, 400_000, 32)
    return path


def slow(epoch: int, batch: int, sample: int, operation: str) -> int:
    """Some samples are always slow, one in one epoch only, and one batch as a whole."""
    uneven = (sample * 7919 + epoch * 104_729 + len(operation)) % 100_000
    if operation == "Loader" and (sample in (20, 121, 300) or (epoch, sample) == (2, 410)):
        return 60 * MS + uneven
    return uneven + (12 * MS if (epoch, batch) == (1, 17) else 0)


@pytest.fixture(scope="module")
def uneven(tmp_path_factory) -> Path:
    """Three epochs of 40 batches of 16 samples with outliers of each kind."""
    path = tmp_path_factory.mktemp("uneven") / "run"
    return simulate(path, workers=2, batches=40, batch_size=16, epochs=3, extra_ns=slow)


def test_a_report_in_pieces_is_that_of_whole_tables(large, monkeypatch) -> None:
    monkeypatch.setattr(table_pieces, "ROWS", 20_000)
    run = lotus.load(large)
    assert len(run.pieces) > 15
    of_pieces = report(run)
    assert not {"ops", "samples"} & set(vars(run))
    assert json.dumps(of_pieces) == json.dumps(report(in_tables(large)))


def test_each_pass_over_the_pieces_tells_how_far_it_is(uneven, monkeypatch) -> None:
    monkeypatch.setattr(table_pieces, "ROWS", 300)
    run = lotus.load(uneven)
    told: list[tuple[int, int]] = []
    summary = summarise(run, advance=lambda done, whole: told.append((done, whole)))
    count = len(run.pieces)
    assert told[:count] == [(done, count) for done in range(1, count + 1)]
    later = len(told)
    assert later > count
    run_page.contents(run, summary, None)
    assert told[-count:] == told[:count]
    assert len(told) >= later + count


def test_outliers_are_found_across_pieces(uneven, monkeypatch) -> None:
    monkeypatch.setattr(table_pieces, "ROWS", 300)
    run = lotus.load(uneven)
    assert len(run.pieces) > 20
    of_pieces, of_tables = report(run), report(in_tables(uneven))
    kinds = {cause["kind"] for cause in of_pieces["verdict"]["causes"]}
    assert {"slow-samples", "stalls", "slow-batches"} <= kinds
    assert of_pieces["loaders"][0]["slow_batches"][0]["batch"] == 17
    assert [row["sample"] for row in of_pieces["loaders"][0]["slowest_samples"][:3]]
    assert json.dumps(of_pieces) == json.dumps(of_tables)


def test_a_comparison_and_a_page_in_pieces_are_those_of_whole_tables(
    uneven, tmp_path, monkeypatch
) -> None:
    def compared(run: object) -> dict:
        sides = [Side("a", [run], "A"), Side("b", [run], "B")]
        return comparison_report.document([compare(*sides)])

    tables = in_tables(uneven)
    of_tables = compared(tables)
    whole = lotus.load(uneven)
    assert len(whole.ops)  # so that it is not read in pieces
    run_page.save(whole, summarise(whole), tmp_path / "whole.html", None)
    monkeypatch.setattr(table_pieces, "ROWS", 300)
    run = lotus.load(uneven)
    assert compared(run) == of_tables
    run_page.save(run, summarise(run), tmp_path / "pieces.html", None)
    assert not {"ops", "samples", "intervals"} & set(vars(run))
    pages = [(tmp_path / f"{name}.html").read_text() for name in ("whole", "pieces")]
    assert pages[0] == pages[1]


def test_figures_of_a_run_beyond_the_exact_are_within_their_error(uneven, monkeypatch) -> None:
    # GIVEN the report of a run, and the same with quantiles from histograms
    exact = report(lotus.load(uneven))["loaders"][0]
    monkeypatch.setattr(durations, "EXACT", 10)
    monkeypatch.setattr(usual_durations, "EXACT_SAMPLES", 10)
    near = report(lotus.load(uneven))["loaders"][0]
    # THEN it says how far they may be off, they are not, and all else is as before
    assert near["coverage"]["usual_sample_error"] == ERROR
    assert exact["coverage"]["usual_sample_error"] == 0
    for mine, row in zip(near["operations"], exact["operations"], strict=True):
        assert (mine["quantile_error"], row["quantile_error"]) == (ERROR, 0)
        for name in ("p50_ns", "p95_ns", "p99_ns"):
            assert mine[name] == pytest.approx(row[name], rel=ERROR)
        assert mine["std_ns"] == pytest.approx(row["std_ns"])
        for name in ("count", "total_ns", "max_ns", "mean_ns"):
            assert mine[name] == row[name]
    titles = [[cause["title"] for cause in of["verdict"]["causes"]] for of in (near, exact)]
    assert titles[0] == titles[1]


def test_a_report_holds_no_more_rows_of_a_larger_run(tmp_path, monkeypatch) -> None:
    # GIVEN two runs, one three times the other, both with more samples than are kept
    monkeypatch.setattr(table_pieces, "ROWS", 3_000)
    monkeypatch.setattr(run_contents, "MOST_KEPT", 5_000)
    held, most = 0, 0

    def count(rows: pd.DataFrame) -> None:
        nonlocal held, most

        def let_go(number: int) -> None:
            nonlocal held
            held -= number

        weakref.finalize(rows, let_go, len(rows))
        held += len(rows)
        most = max(most, held)

    read, times = table_pieces.Pieces.__getitem__, table_pieces.Pieces.times

    def counted(pieces, place):
        piece = read(pieces, place)
        count(piece.ops)
        count(piece.samples)
        return piece

    def counted_times(pieces, place):
        rows = times(pieces, place)
        count(rows)
        return rows

    monkeypatch.setattr(table_pieces.Pieces, "__getitem__", counted)
    monkeypatch.setattr(table_pieces.Pieces, "times", counted_times)
    peaks = []
    for events in (60_000, 180_000):
        write_run(tmp_path / str(events), events, 32)
        most = 0
        run = lotus.load(tmp_path / str(events))
        summarise(run)
        assert not {"ops", "samples"} & set(vars(run))
        peaks.append(most)
    # THEN as many samples and operations are in memory at a time
    assert peaks[1] <= 1.1 * peaks[0]
    assert peaks[1] < 10_000


def test_samples_of_a_small_run_are_read_again_once_for_all_passes(uneven, monkeypatch) -> None:
    read, times = [], table_pieces.Pieces.times

    def counted(pieces, place):
        read.append(place)
        return times(pieces, place)

    monkeypatch.setattr(table_pieces, "ROWS", 300)
    monkeypatch.setattr(table_pieces.Pieces, "times", counted)
    of_small = report(lotus.load(uneven))
    assert len(read) == len(set(read)) > 20
    # WHEN there are more samples than are kept
    monkeypatch.setattr(run_contents, "MOST_KEPT", 100)
    of_large = report(lotus.load(uneven))
    # THEN each pass reads them, and finds the same
    assert json.dumps(of_small) == json.dumps(of_large)
    assert len(read) > 3 * len(set(read))


def test_pieces_of_a_run_are_its_tables(large) -> None:
    run = lotus.load(large)
    pieces = table_pieces.Pieces(run, rows=50_000)
    for name in ("ops", "samples"):
        parts = pd.concat([getattr(piece, name) for piece in pieces], ignore_index=True)
        whole = getattr(run, name)
        for column in whole.columns:
            assert parts[column].astype(str).equals(whole[column].astype(str)), column
    assert len(pieces[:2]) == 2
    times = pd.concat([pieces.times(place) for place in range(len(pieces))], ignore_index=True)
    assert times.equals(run.samples.drop(columns=["ops_ns", "self_ns"]))
