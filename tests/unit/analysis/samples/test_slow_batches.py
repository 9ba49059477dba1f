"""Samples that are slow by themselves, told from batches that were slow as a whole."""

import io
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.samples.slow_batches import slow_batches, typical_of_others
from lotus.analysis.samples.slow_samples import slowest_samples
from lotus.analysis.summary import summarise
from lotus.analysis.verdict.verdict import verdict
from lotus.reporters.base.console import plain_console
from lotus.reporters.run import run_document, terminal
from tests.unit.simulated import MS, Plan


def stalled(*batches: int, size: int = 8, **more: float) -> SimpleNamespace:
    """A run in which all samples of these batches took 40 ms and others 2 to 3; `s7=90`: 7 took."""
    alone = {int(name[1:]): value for name, value in more.items()}

    def took(sample: int, worker: int) -> float:
        usual = 40.0 if sample // size in batches else 2.0 + sample % 5 / 5
        return alone.get(sample, usual)

    return Plan(batches=40, batch_size=size, operations={"Loader": took}, step=6).run()


def shown(run: SimpleNamespace) -> str:
    file = io.StringIO()
    terminal.write(plain_console(file), summarise(run))
    return file.getvalue()


@pytest.mark.parametrize("size", [2, 4, 8, 32])
def test_a_batch_that_was_slow_as_a_whole_is_told_and_not_its_samples(size: int) -> None:
    scope = scopes(stalled(12, 13, size=size, s3=9.0))[0]
    rows = slow_batches(scope)
    assert sorted(rows["batch"]) == [12, 13]
    assert rows["slow"].tolist() == rows["samples"].tolist() == [size, size]
    assert (rows["times"] > 12).all()
    samples = slowest_samples(scope)
    assert samples["sample"][0] == 3
    assert not set(samples["batch"]) & {12, 13}


def test_a_sample_that_stands_out_of_a_slow_batch_is_named() -> None:
    scope = scopes(stalled(12, s100=400.0, s3=30.0))[0]
    rows = slowest_samples(scope)
    assert rows["sample"].tolist()[:2] == [100, 3]
    assert rows["times"][0] > 100
    assert rows["beyond"][0] == pytest.approx(10, abs=0.1)
    assert slow_batches(scope)["batch"].tolist() == [12]


def test_the_slowest_samples_are_in_the_order_of_the_time_that_is_shown() -> None:
    # The second one stands out more, as the others of its batch were quick.
    rows = slowest_samples(scopes(stalled(12, s100=180.0, s3=175.0))[0])
    assert rows["sample"].tolist()[:2] == [100, 3]
    assert rows["duration_ns"].is_monotonic_decreasing


def test_slow_samples_that_met_in_a_batch_are_no_slow_batch() -> None:
    rng = np.random.default_rng(3)
    slow = set(rng.permutation(160)[:56].tolist())  # a third: in some batch of 4 three or four meet
    took = {"Loader": lambda sample, _: 20.0 if sample in slow else 2.0}
    scope = scopes(Plan(batches=40, batch_size=4, operations=took).run())[0]
    met = np.bincount([sample // 4 for sample in slow], minlength=40)
    assert met.max() >= 3
    assert not len(slow_batches(scope))
    assert (slowest_samples(scope)["sample"].isin(list(slow))).all()


def test_samples_that_are_slow_in_every_epoch_are_slow_themselves() -> None:
    took = {"Loader": lambda sample, _: 40.0 if 20 <= sample < 24 else 2.0}
    run = Plan(epochs=3, operations=took).run()
    run.samples["sample"] = run.samples["sample"].where(
        run.samples["epoch"] == 0, (run.samples["sample"] * 37 + 5) % 160
    )
    slow = run.samples["sample"].between(20, 23)
    run.samples["duration_ns"] = np.where(slow, 40 * MS, 2 * MS)
    scope = scopes(run)[0]
    assert not len(slow_batches(scope))
    assert set(slowest_samples(scope, 6)["sample"]) <= {20, 21, 22, 23}


def test_a_worker_that_is_always_slow_has_no_slow_batches() -> None:
    took = {"Loader": lambda sample, worker: 20.0 + sample % 3 if worker == 2 else 2.0}
    assert not len(slow_batches(scopes(Plan(workers=4, operations=took).run())[0]))


def test_batches_without_times_of_their_samples_and_of_one_sample() -> None:
    run = stalled(12)
    run.samples = run.samples.assign(many=True)
    assert not len(slow_batches(scopes(run)[0]))
    scope = scopes(stalled(12, size=1))[0]  # its batch cannot be told from the sample
    assert not len(slow_batches(scope))
    assert slowest_samples(scope)["sample"][0] == 12


def test_the_others_of_a_batch() -> None:
    took = np.array([5.0, 1.0, np.nan, 3.0, 9.0, 7.0, 2.0])
    batch = np.array([0, 0, 0, 0, 1, -1, 0])
    typical = typical_of_others(took, batch)
    wanted = [2.0, 3.0, np.nan, 2.0, np.nan, np.nan, 3.0]
    assert np.array_equal(typical, wanted, equal_nan=True)


def test_the_report_tells_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run = stalled(0, 12, 13, s3=400.0)
    text = shown(run)
    table = text.partition("Batches that were slow as a whole\n")[2].splitlines()[1:4]
    rows = {line.split()[0]: line for line in table}
    assert set(rows) == {"0/0", "0/12", "0/13"}
    assert rows["0/0"].endswith("the first of its worker")
    assert "8 of 8" in rows["0/12"]
    assert "stall of the machine" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    document = run_document.document(summarise(run))["loaders"][0]
    assert [row["batch"] for row in document["slow_batches"]] == [0, 12, 13]
    assert "slow as a whole" not in shown(stalled())


def test_a_stall_is_a_cause_of_its_own() -> None:
    run = stalled(12, 13)
    causes = verdict(scopes(run)[0]).causes
    first = causes[0]
    assert (first.kind, first.evidence["batches"]) == ("slow-batches", 2)
    assert first.title.startswith("2 batches that were slow as a whole, the slowest 0/12")
    assert not [cause for cause in causes if cause.kind == "slow-samples"]
    assert sum(cause.share for cause in causes) <= 1.0001
    both = {cause.kind for cause in verdict(scopes(stalled(12, s200=300.0))[0]).causes}
    assert {"slow-batches", "slow-samples"} <= both
    assert "All their samples were slow at once" in " ".join(shown(run).split())


def test_batches_whose_samples_are_slow_in_each_epoch_are_not_called_a_stall() -> None:
    # GIVEN two epochs of the same batches, of which two have only slow samples
    took = {"Loader": lambda sample, _: 40.0 if sample // 4 in (12, 25) else 2.0}
    run = Plan(batches=40, epochs=2, operations=took, step=6).run()
    first = verdict(scopes(run)[0]).causes[0]
    assert first.kind == "slow-batches"
    assert first.title.startswith("4 batches of samples that are slow each time, such as ")
    assert first.advice.startswith("The same samples were slow in each epoch")
    once = verdict(scopes(stalled(12, 25))[0]).causes[0]
    assert once.title.startswith("2 batches that were slow as a whole")
    assert once.advice.startswith("All their samples were slow at once")


def test_what_was_slow_in_a_few_of_many_epochs_is_a_stall() -> None:
    epochs = iter(range(10**6))

    def took(sample: int, _: int) -> float:
        return 40.0 if sample // 4 == 12 and next(epochs) // 4 in (0, 5) else 2.0

    run = Plan(batches=40, epochs=8, operations={"Loader": took}, step=6).run()
    scope = scopes(run)[0]
    first = next(cause for cause in verdict(scope).causes if cause.kind == "slow-batches")
    assert (first.evidence["batches"], first.evidence["again_share"]) == (2, 0.0)
    assert "no sample is to blame" in first.advice


def test_two_ranks_have_one_epoch_together() -> None:
    run = stalled(12, 13)
    for name in ("epochs", "batches", "waits", "samples", "ops", "workers"):
        table = getattr(run, name)
        setattr(run, name, pd.concat([table, table.assign(rank=1)], ignore_index=True))
    scope = scopes(run)[0]
    assert (len(scope.epochs), scope.epoch_count) == (2, 1)
    first = next(cause for cause in verdict(scope).causes if cause.kind == "slow-batches")
    assert first.evidence["again_share"] == 0.0
    assert "Record a second epoch" in first.advice
