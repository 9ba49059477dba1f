"""The rank for whose data all ranks of a job wait, where that is clear.

Ranks that average their gradients take their steps together. Where one of them waits for data and
another does not, but is blocked in its step, the other waits there for the first one: the mean of
both describes neither, and only what helps the first helps the job.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column, ratio, total
from lotus.analysis.common.scope import Scope
from lotus.common.text.formatting import share

LEAST_MORE = 0.25  # of its loop: a rank waits for data so much longer than another
LEAST_BLOCKED = 0.5  # of the other's step: it waits for something else than a core
_ALIKE = 0.1  # ranks that step together take as many steps, in times that differ by this much


@dataclass(frozen=True)
class HeldUp:
    """`rank` waits for data, `other` least of all and is blocked in its step. Shares are 0 to 1."""

    rank: int
    wait_share: float  # of the rank's loop
    other: int
    other_wait_share: float
    other_blocked_share: float  # of its step

    def sentence(self) -> str:
        """Return a sentence on which rank a verdict is of, and what shows it."""
        return which_rank_is_judged(
            (f"rank {self.rank}", self.wait_share),
            (f"rank {self.other}", self.other_wait_share, self.other_blocked_share),
        )


def which_rank_is_judged(last: tuple[str, float], other: tuple[str, float, float]) -> str:
    """Say which rank a verdict is of, and why.

    `last`: (name, share that it waits for data); `other`: with the blocked share of its step.
    """
    name = last[0].partition(" (")[0]
    return (
        f"All this is about {last[0]}, which waits for data {share(last[1])} of its loop; "
        f"{other[0]} waits {share(other[1])} and is blocked for {share(other[2])} of "
        f"its step, most likely waiting for {name}."
    )


def held_up(scope: Scope, ranks: pd.DataFrame) -> HeldUp | None:
    """Find the rank; None if it is not clear. `ranks`: as of `rank_table`."""
    known = ranks[np.isfinite(float_column(ranks, "wait_share"))]
    if len(known) < 2:
        return None
    shares = float_column(known, "wait_share")
    last, other = known.iloc[int(shares.argmax())], known.iloc[int(shares.argmin())]
    if last["wait_share"] - other["wait_share"] < LEAST_MORE:
        return None
    if not all(_alike(last[name], other[name]) for name in ("batches", "loop_ns")):
        return None
    blocked = _blocked_in_step(scope, int(other["rank"]))
    if not blocked >= LEAST_BLOCKED:
        return None
    return HeldUp(
        rank=int(last["rank"]),
        wait_share=float(last["wait_share"]),
        other=int(other["rank"]),
        other_wait_share=float(other["wait_share"]),
        other_blocked_share=blocked,
    )


def _alike(first: float, second: float) -> bool:
    return abs(first - second) <= _ALIKE * max(first, second)


def _blocked_in_step(scope: Scope, rank: int) -> float:
    """Return the share of steps in which a main thread neither computed nor lacked a core."""
    waits = scope.waits[int_column(scope.waits, "rank") == rank]
    took, cpu, delay = (
        float_column(waits, f"step_{name}ns") for name in ("", "cpu_", "run_delay_")
    )
    known = np.isfinite(took + cpu + delay)
    busy = total(cpu[known]) + total(delay[known])
    return 1.0 - ratio(busy, total(took[known]))
