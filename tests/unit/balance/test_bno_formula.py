"""BalanceNet Orchestrator's equations, by hand."""

import numpy as np
import pytest

from lotus.balance.bno_formula import orchestrate


def test_the_equations_by_hand() -> None:
    # Three nodes: 1, 2 and 1 operations a second, 10, 20 and 10 bytes; 3 lies farther away.
    latency = np.array([[0.0, 2.0, 4.0], [2.0, 0.0, 4.0], [4.0, 5.0, 0.0]])
    shares = orchestrate(np.array([1.0, 2.0, 1.0]), np.array([10.0, 20.0, 10.0]), latency, 30.0)
    assert shares.k.tolist() == [0.25, 0.5, 0.25]
    assert shares.mw.tolist() == [0.75, 0.5, 0.75]
    # 1: (1 - 0) + (1 - 2/4) + (1 - 4/4); 2 the same; 3: (1 - 4/5) + (1 - 5/5) + 1.
    assert shares.ncw == pytest.approx([1.5, 1.5, 1.2])
    # (0.25 + 0.75 + 1.5) / 3 x 30 = 25; the same; (0.25 + 0.75 + 1.2) / 3 x 30 = 22
    assert shares.sizes == (25, 25, 22)


def test_alike_nodes_get_two_thirds_of_the_base_each_whatever_their_number() -> None:
    # K = 1/N, MW = 1 - 1/N, the sum of NCW = 1: only NL_ii is not the farthest.
    for ranks in (2, 4, 64):
        same = np.ones(ranks)
        latency = 1.0 - np.eye(ranks)
        assert orchestrate(same, same, latency, 30.0).sizes == (20,) * ranks


def test_the_sum_grows_with_the_number_of_nodes() -> None:
    # One farther node: each other one has N - 1 near ones, so its weight grows with N.
    for ranks in (4, 16):
        latency = np.zeros((ranks, ranks))
        latency[:, -1] = latency[-1, :] = 1.0
        latency[-1, -1] = 0.0
        same = np.ones(ranks)
        assert orchestrate(same, same, latency, 30.0).sizes[0] == 30 * ranks // 3


def test_a_node_never_gets_nothing() -> None:
    assert orchestrate(np.ones(2), np.ones(2), 1.0 - np.eye(2), 1.0).sizes == (1, 1)


def test_latencies_and_memory_that_are_all_zero() -> None:
    shares = orchestrate(np.ones(2), np.zeros(2), np.zeros((2, 2)), 3.0)
    assert shares.mw.tolist() == [0.5, 0.5]
    assert shares.ncw.tolist() == [2.0, 2.0]
    with pytest.raises(ValueError, match="above 0"):
        orchestrate(np.zeros(2), np.ones(2), np.ones((2, 2)), 3.0)
