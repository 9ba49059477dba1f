"""Iterable data that are divided unevenly among workers."""

from types import SimpleNamespace

import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.data.data_shares import DataShares, data_shares
from lotus.analysis.verdict.verdict import Verdict, verdict
from tests.unit.simulated import Plan


def divided(*batches: int, epochs: int = 1) -> SimpleNamespace:
    """A loop over an iterable data set whose worker n makes batches[n] of an epoch's batches."""
    run = Plan(
        workers=len(batches),
        batches=sum(batches),
        epochs=epochs,
        operations={"Read": 20.0},
        step=1.0,
    ).run()
    run.loaders["dataset_kind"] = "iterable"
    left = list(batches) * epochs
    makers = []
    for epoch in range(epochs):
        mine = left[epoch * len(batches) : (epoch + 1) * len(batches)]
        while any(mine):
            for worker, count in enumerate(mine):
                if count:
                    makers.append(worker)
                    mine[worker] -= 1
    run.batches["worker"] = makers
    return run


def shares(*batches: int, epochs: int = 1) -> DataShares:
    return data_shares(scopes(divided(*batches, epochs=epochs))[0])


def judged(run: SimpleNamespace) -> Verdict:
    return verdict(scopes(run)[0])


@pytest.mark.parametrize(
    "batches", [(20, 20), (5, 4, 4, 4), (2, 1, 1, 1), (20, 18, 19, 20), (12, 9)]
)
def test_nearly_equal_shares_lose_nothing(batches: tuple[int, ...]) -> None:
    assert not shares(*batches).lost
    assert not shares(*batches).empty


def test_what_is_lost_is_what_equal_shares_would_save() -> None:
    uneven = shares(60, 10, 10, 10, epochs=2)
    assert uneven.empty == 0
    assert uneven.lost == pytest.approx(1 - 22.5 / 60)
    assert uneven.largest == pytest.approx(60 / 90)
    starved = shares(20, 0, 20, 0)
    assert starved.empty == 2
    assert starved.lost == pytest.approx(0.5)


def test_a_map_style_data_set_is_never_divided_unevenly() -> None:
    run = divided(60, 10, 10, 10)
    run.loaders["dataset_kind"] = "map"
    assert data_shares(scopes(run)[0]) == DataShares()


def test_uneven_data_are_the_first_cause_and_no_workers_are_advised() -> None:
    first = judged(divided(90, 10, 10, 10)).causes[0]
    assert first.kind == "starved-workers"
    assert "one of the 4 workers makes 75% of an epoch's samples" in first.title
    assert "Raise num_workers" not in " ".join(
        cause.advice for cause in judged(divided(90, 10, 10, 10)).causes
    )


def test_where_the_step_sets_the_pace_uneven_data_are_not_its_cause() -> None:
    run = divided(60, 10, 10, 10)
    run.waits["wait_ns"] = 1000
    assert judged(run).causes[0].kind == "consumer"
