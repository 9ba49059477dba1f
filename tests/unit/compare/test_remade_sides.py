"""Sides whose program makes its loader anew for each epoch, held against sides that keep it."""

from types import SimpleNamespace

import pandas as pd
import pytest

from lotus.analysis.summary import summarise
from lotus.reporters.compare import comparison_page, comparison_report
from tests.unit.analysis.verdict.test_run_time import shift, together
from tests.unit.sides import held, recorded, shown

EPOCHS = 3


def remade(seed: int, gap: float = 1e6) -> SimpleNamespace:
    """A run of a loader for each epoch, so much (ns) after the one before."""
    runs = [recorded(seed + place, epochs=1, loader=place) for place in range(EPOCHS)]
    end = runs[0].epochs["end_ns"].max()
    for run in runs[1:]:
        shift(run, end + gap - run.epochs["start_ns"].min())
        end = run.epochs["end_ns"].max()
    return together(*runs)


def kept(seed: int) -> SimpleNamespace:
    return recorded(seed, epochs=EPOCHS, persistent=True)


@pytest.mark.parametrize("swapped", [False, True])
def test_all_epochs_of_both_sides_are_compared(swapped: bool) -> None:
    sides = [remade(1), kept(11)]
    if swapped:
        sides.reverse()
    comparison = held(*sides)
    (loader,) = comparison.loaders
    assert comparison.unmatched == []
    assert "epochs" not in [fact.what for fact in loader.facts]
    assert "first epoch" not in shown(comparison)
    throughput = loader.line("throughput")
    assert throughput is not None
    rates = [summarise(side).loaders[0].times["samples_per_s"] for side in sides]
    assert [throughput.a, throughput.b] == pytest.approx(rates)


def test_that_one_side_makes_it_anew_is_said() -> None:
    (loader,) = held(remade(1), kept(11)).loaders
    (fact,) = [fact for fact in loader.facts if fact.what == "created anew"]
    assert (fact.a, fact.b) == ([True], [False])
    (loader,) = held(remade(1), remade(11)).loaders
    assert "created anew" not in [fact.what for fact in loader.facts]


def test_each_of_several_runs_has_all_its_epochs() -> None:
    sides = [[remade(1), remade(11)], [kept(21), kept(31), kept(41)]]
    comparison = held(*sides)
    throughput = comparison.line("throughput")
    assert throughput is not None
    for value, side in zip((throughput.a, throughput.b), sides, strict=True):
        times = [summarise(run).loaders[0].times for run in side]
        samples, loop_ns = (sum(each[name] for each in times) for name in ("samples", "loop_ns"))
        assert value == pytest.approx(samples / loop_ns * 1e9)


def counted(run: SimpleNamespace, more: int) -> SimpleNamespace:
    """The run, with counts that grow by `more` with each epoch."""
    batches = run.batches
    rows = batches[["rank", "pid", "loader", "epoch", "batch"]]
    rows = rows.assign(tid=rows["pid"], nested=False, enabled_ns=1, running_ns=1, operation="")
    rows = rows.assign(kind="fetch", duration_ns=batches["fetch_ns"], helper_ns=0.0)
    rows["instructions"] = 1000.0 + more * (rows["loader"] + rows["epoch"])
    run.counters = pd.DataFrame(rows)
    return run


def test_counts_are_those_of_all_epochs() -> None:
    (loader,) = held(counted(remade(1), 3000), counted(kept(11), 3000)).loaders
    (line,) = [line for line in loader.lines if line.id.endswith(":instructions")]
    assert [line.a, line.b] == pytest.approx([1000, 1000])  # of 4 samples: (1 + 4 + 7) / 3 / 4


def test_loaders_of_one_name_without_a_pair_are_one_line() -> None:
    comparison = held(remade(1, gap=-1e6), kept(11))  # of a program that iterates them at once
    assert [(only.side, only.count) for only in comparison.unmatched] == [("a", EPOCHS - 1)]
    assert "Only A has 2 loaders ImageFolder at train.py:31." in " ".join(shown(comparison).split())
    document = comparison_report.document([comparison])
    assert document["comparisons"][0]["unmatched"] == [
        {"side": "a", "loader": "ImageFolder at train.py:31", "count": 2}
    ]
    texts = [part for section in comparison_page.sections([comparison]) for part in section.parts]
    assert texts.count("Only A has 2 loaders ImageFolder at train.py:31.") == 1
