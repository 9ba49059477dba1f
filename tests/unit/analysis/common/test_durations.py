import numpy as np
import pytest

from lotus.analysis.common import durations
from lotus.analysis.common.durations import ERROR, NONE, Durations

SHARES = (0.0, 0.01, 0.25, 0.5, 0.95, 0.99, 1.0)


def _random(count: int, seed: int = 0) -> np.ndarray:
    """From some nanoseconds to minutes, whole, some of them 0."""
    drawn = np.random.default_rng(seed).lognormal(12, 4, count)
    return np.floor(drawn).astype(np.float64)


@pytest.mark.parametrize("exact", [1 << 20, 100])
def test_added_in_any_order_they_are_what_they_are_at_once(monkeypatch, exact: int) -> None:
    # GIVEN parts of random sizes, kept as they are or as a histogram
    monkeypatch.setattr(durations, "EXACT", exact)
    values = _random(20_000)
    cuts = np.sort(np.random.default_rng(1).integers(0, len(values), 30))
    parts = [Durations.of(part) for part in np.split(values, cuts)]
    whole = Durations.of(values)
    # WHEN they are added one by one, backwards, and in pairs
    forwards, backwards, pairs = NONE, NONE, NONE
    for first, second in zip(parts, reversed(parts), strict=True):
        forwards, backwards = forwards + first, second + backwards
    for first in range(0, len(parts), 2):
        pairs = sum(parts[first + 1 : first + 2], parts[first]) + pairs
    # THEN it makes no difference
    for merged in (forwards, backwards, pairs):
        assert merged.quantiles(SHARES) == whole.quantiles(SHARES)
        assert (merged.count, merged.total) == (len(values), values.sum())
        assert (merged.least, merged.most) == (values.min(), values.max())
        assert merged.mean == pytest.approx(values.mean())
        assert merged.std == pytest.approx(values.std())
        assert bool(merged.error) == (exact < len(values))


def test_few_are_exact() -> None:
    values = _random(1000)
    few = Durations.of(values)
    assert few.error == 0
    assert few.quantiles(SHARES) == np.quantile(values, SHARES).tolist()


def test_quantiles_of_many_are_within_the_error_that_is_said(monkeypatch) -> None:
    monkeypatch.setattr(durations, "EXACT", 10)
    for seed in range(20):
        values = _random(5000, seed)
        many = Durations.of(values)
        exact, cuts = np.quantile(values, SHARES), np.array(many.quantiles(SHARES))
        assert many.error == ERROR <= 0.005
        assert (np.abs(cuts - exact) <= ERROR * exact + 1e-9).all()
        assert len(many.bins) < 6000
        assert not len(many.values)


def test_what_is_not_known_does_not_count() -> None:
    assert Durations.of(np.array([np.nan, 5.0])).count == 1
    nothing = Durations.of(np.array([np.nan]))
    assert nothing is NONE
    assert np.isnan([nothing.mean, nothing.std, *nothing.quantiles(SHARES)]).all()
