"""Imports of spawned workers, as far as the loop waits for them."""

import math

import pandas as pd

from lotus.analysis.batches.worker_imports import waited_imports


def epochs(count: int = 1, ranks: int = 1, iter_s: float = 1.0) -> pd.DataFrame:
    rows = [(rank, epoch) for rank in range(ranks) for epoch in range(count)]
    table = pd.DataFrame(rows, columns=["rank", "epoch"])
    return table.assign(start_ns=0.0, iter_ns=iter_s * 1e9)


def workers(*spans: tuple[float, float], ranks: int = 1) -> pd.DataFrame:
    rows = [(rank, 1e9 * begun, 1e9 * took) for rank in range(ranks) for begun, took in spans]
    return pd.DataFrame(rows, columns=["rank", "start_ns", "import_ns"])


def test_what_iter_waits_for_counts_and_what_it_pickles_meanwhile_does_not() -> None:
    # GIVEN workers of which each is started once the one before has imported
    blocked = workers((0.5, 2.0), (2.6, 2.0))
    assert waited_imports(blocked, epochs(iter_s=4.7)) == 4e9
    # AND workers that are started while the one before still imports
    assert waited_imports(workers((1.5, 1.6), (3.0, 1.6)), epochs(iter_s=3.1)) == 1.5e9
    # AND what is after iter() counts once
    assert waited_imports(workers((0.0, 3.0), (0.1, 3.0)), epochs(iter_s=0.2)) == 2.9e9


def test_each_rank_waits_for_its_own() -> None:
    mine = workers((0.0, 3.0), (0.1, 3.0), ranks=3)
    assert math.isclose(waited_imports(mine, epochs(ranks=3, iter_s=0.2)), 3 * 2.9e9)


def test_of_several_epochs_forked_workers_or_none_it_is_nothing() -> None:
    mine = workers((0.0, 3.0))
    assert waited_imports(mine, epochs(count=2)) == 0.0
    assert waited_imports(mine.assign(import_ns=math.nan), epochs()) == 0.0
    assert waited_imports(mine.head(0), epochs()) == 0.0
    assert waited_imports(mine, epochs().drop(columns="rank")) == 0.0
