"""The uncertainty of causes' shares: a bootstrap over the batches, of all causes together."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.batches.wait_spread import LEAST_BATCHES, binned, replicated_shares
from lotus.analysis.common.columns import flag, float_column
from lotus.analysis.verdict.causes.cause_row import Charge
from lotus.common.numbers.array_types import Floats
from lotus.common.numbers.statistics import wilson

_MOST_AT_EDGES = (
    0.5  # of a charge: with more before, in or after first batches, later ones say little
)


@dataclass(frozen=True)
class CauseSpread:
    """`shares`: of each charge in each replicate, relative to the charge's own (replicates, c).

    NaN where it is not known: of charges at the edges of epochs, and with few batches.
    """

    charges: Sequence[Charge]
    shares: Floats

    def of(self, charge: Charge) -> Floats:
        """Return the charge in each replicate, ns; NaN where that is not known."""
        place = next((i for i, mine in enumerate(self.charges) if mine is charge), None)
        factors = np.full(1, np.nan) if place is None else self.shares[:, place]
        return np.asarray(charge.ns * factors, np.float64)

    def interval(self, charge: Charge) -> tuple[float, float]:
        """Return the 95 % interval of the charge, ns; NaN where it is not known.

        The wider one of two: from how batches vary, and, of a charge that was inferred from
        observations, Wilson's, as if these were independent.
        """
        low, high = np.quantile(self.of(charge), [0.025, 0.975])
        share, looks = charge.looks
        if share > 0 and looks > 0:
            ends = (charge.ns * end / share for end in wilson(share, looks))
            low, high = np.fmin(low, next(ends)), np.fmax(high, next(ends))
        return max(float(low), 0.0), float(high)

    def larger(self, charge: Charge, other: Charge) -> float:
        """Return the share of the replicates in which `other` is the larger; 0.0 if not known."""
        return float((self.of(other) > self.of(charge)).mean())


UNKNOWN = CauseSpread((), np.empty((1, 0)))


def cause_spread(batches: pd.DataFrame, charges: Sequence[Charge]) -> CauseSpread:
    """Draw the batches of a loop again and again, in blocks, and add up each charge."""
    whole = float_column(batches, "wait_ns") + np.nan_to_num(float_column(batches, "step_ns"))
    steady = ~np.isnan(whole) & ~flag(batches, "first")
    known = [charge for charge in charges if charge.by_batch is not None]
    if steady.sum() < LEAST_BATCHES or not known:
        return UNKNOWN
    rows = np.flatnonzero(steady)
    sums = np.zeros(len(known))

    def parts(some: slice) -> Floats:
        result = np.empty((some.stop - some.start, len(known) + 1))
        for index, charge in enumerate(known):
            assert charge.by_batch is not None
            result[:, index] = np.maximum(np.nan_to_num(charge.by_batch[rows[some]]), 0.0)
        result[:, -1] = whole[rows[some]]
        sums[:] += result[:, :-1].sum(axis=0)
        return result

    shares = replicated_shares(binned(len(rows), parts))
    own = np.array([charge.ns for charge in known])
    shares[:, ~(sums > (1.0 - _MOST_AT_EDGES) * own)] = np.nan
    return CauseSpread(known, shares)
