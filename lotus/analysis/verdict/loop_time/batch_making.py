"""The making of a loader's batches as recorded, whether or not the loop waited for it.

Of outliers (a few slow samples, batches that were slow as a whole, one slow worker, files read from
cold storage), only what they took beyond the ordinary counts.
"""

from functools import cached_property

import numpy as np
import pandas as pd

from lotus.analysis.batches.components import (
    components,
    core_taken,
    first_excess,
    first_of_process,
    interpreter_held,
    off_cpu,
    slow_workers,
    storage_parts,
)
from lotus.analysis.batches.waits import loop_times
from lotus.analysis.common.columns import float_column, int_column, mean, ratio, total
from lotus.analysis.common.scope import Scope
from lotus.analysis.data.repeated_samples import divided_data
from lotus.analysis.machine.core_use import CoreUse, core_use
from lotus.analysis.observations.looks import looks_of_main
from lotus.analysis.observations.step_lock import step_lock
from lotus.analysis.samples.outlier_samples import (
    costliest,
    outlier_parts,
    outlier_samples,
    regular_distance,
)
from lotus.analysis.samples.slow_batches import slow_as_a_whole
from lotus.common.numbers.array_types import Floats, Ints
from lotus.common.storage.long_arrays import kept

# If workers use this much of the cores, they wait for a core and not for storage or a network.
CROWDED = 0.7
# Kinds of outliers, as `Outliers` has them.
ALONE, BY_CHANCE, TOGETHER = range(3)
# Others had the cores where they did for more than this share of the time of the fetches.
SHARED = 0.2


class BatchMaking:
    """The making of batches: nanoseconds, per batch (n,) or per batch and component (n, c).

    `took_ns`: how long each batch kept its worker, 1.0 where that was not recorded (`known`).
    `own_part`: the share of each fetch in which others did not have its core. `slow_every`: in the
    order of their worker, one in so many samples is slow; 0: not regularly.
    """

    def __init__(self, scope: Scope) -> None:
        batches = scope.batches
        self.scope = scope
        self.use = core_use(scope)
        self.shares = divided_data(scope)
        self.looks_of_main = looks_of_main(scope)
        self.step_lock = step_lock(scope, self.looks_of_main.are_enough)
        self.loop = loop_times(scope.epochs, scope.waits)
        self.components = components(batches, scope.fetched, scope.calls)
        self.first = first_of_process(batches, scope.workers)
        self.crowded = _crowded(scope, self.use)
        whole = slow_as_a_whole(scope).whole
        self.outliers = outlier_samples(scope, self.first, whole)
        self.workers = slow_workers(batches, self.components.fetch, self.first)
        fetch = self.components.fetch
        self.slow_every = 0
        if self.outliers.alone.any():
            of_all = costliest(self.outliers, self.outliers.alone)
            chosen = self.outliers.samples.iloc[of_all].reset_index(drop=True)
            self.slow_every = regular_distance(scope.fetched.times(), chosen)
        self.known = fetch > 0
        self.took_ns = kept(np.where(self.known, self.components.making, 1.0))
        self.first_excess = kept(first_excess(batches, fetch, self.first))
        self.held = kept(np.minimum(interpreter_held(batches, fetch), fetch - self.first_excess))
        taken = core_taken(batches, fetch) / np.where(self.known, fetch, 1.0)
        self.own_part = kept(1.0 - np.minimum(taken, 1.0))

    @property
    def stalls_held(self) -> bool:
        """True if what is slow by chance waits for the interpreter.

        Another thread keeps that for 5 ms at a time.
        """
        return self.looks_of_main.are_enough and not self.scope.num_workers

    @cached_property
    def storage(self) -> Floats | None:
        """The time that each component waited for storage (n, c); None: nothing did."""
        if self.crowded:
            return None
        kinds = self.scope.operations
        names: set[str] = set()
        if len(kinds):
            names = set(kinds.loc[kinds["kind"].astype(str) == "loader", "operation"].astype(str))
        return storage_parts(self.components, self.scope.batches, names, self.held, self.first)

    @cached_property
    def excess(self) -> tuple[Ints, list[Floats]]:
        """The time of outliers beyond what is typical of their worker, as of `outlier_parts`.

        For each kind: ALONE, BY_CHANCE, TOGETHER.
        """
        return outlier_parts(self.components, self.scope, self.outliers)

    def with_core(self, parts: Floats) -> Floats:
        """Return the part of such an excess in which others did not have its core (r, 1), 0 to 1.

        The rest is the batch's time without a core, beyond what batches without an excess have.
        """
        fetch, excess = self.components.fetch, np.zeros(len(self.own_part))
        excess[self.excess[0]] = parts.sum(axis=1)
        delay = (1.0 - self.own_part) * fetch
        without = (excess <= 0) & (fetch > 0)
        usual = float(np.median(delay[without])) if without.any() else 0.0
        beyond = np.maximum(delay - usual, 0.0) / np.where(excess > 0, excess, np.inf)
        return np.asarray(1.0 - np.minimum(beyond, 1.0))[self.excess[0], None]

    def lag(self) -> Floats:
        """Return the fraction of each batch's making that is due to its worker being slow (n,)."""
        batches, slow = self.scope.batches, self.workers[self.workers["slow"]]
        if not len(slow):
            return np.zeros(len(batches))
        keys = {"rank": int_column(batches, "rank"), "worker": int_column(batches, "worker")}
        joined = pd.DataFrame(keys).merge(slow, on=["rank", "worker"], how="left")
        return np.nan_to_num(1.0 - 1.0 / joined["times"].to_numpy(np.float64))


def _crowded(scope: Scope, use: CoreUse) -> bool:
    if np.isfinite(use.own_share):
        return use.full
    # Of a partly recorded loop the mean stands for all batches.
    used = mean(float_column(scope.batches, "cpu_ns")) * len(scope.waits)
    loop_ns = total(float_column(loop_times(scope.epochs, scope.waits), "loop_ns"))
    return ratio(used, loop_ns * scope.cores) > CROWDED


def core_shared(scope: Scope, use: CoreUse) -> float:
    """Return the share of the workers' time off a core in which others had it; 0.0 if it is small.

    Where the program itself keeps the cores busy, it is its own workers that wait for one another.
    """
    fetch = np.nan_to_num(float_column(scope.batches, "fetch_ns"))
    taken, off = (total(part(scope.batches, fetch)) for part in (core_taken, off_cpu))
    if taken < SHARED * total(fetch) or _crowded(scope, use):
        return 0.0
    return ratio(taken, taken + off)
