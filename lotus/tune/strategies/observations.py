"""What was measured until now, put together, and which setting it speaks for.

Each measurement told is one more block of its setting, by itself; a setting that fails has none.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection

from lotus.common.statistics import Z95
from lotus.settings.space import Measurement, Observed, Setting
from lotus.tune.strategies.equivalent_settings import better, both, loader_of, twin_of, worked_out
from lotus.tune.strategies.hypotheses import KnownRate
from lotus.tune.strategies.preference import TIE, cost
from lotus.tune.strategies.problem import Problem

TRIALS = 5  # different settings, at most
ERROR = 0.02  # of a rate, where trials do not tell it (standard deviation of its logarithm)


class Observations:
    """The blocks of each setting that works, and those that failed. `space`: what may be chosen."""

    def __init__(self, problem: Problem, space: Collection[Setting]) -> None:
        self._problem = problem
        self._space = space
        self.blocks: dict[Setting, list[Measurement]] = {}
        self.failed: dict[Setting, Measurement] = {}
        self.spent_s = 0.0

    def tell(self, setting: Setting, measurement: Measurement) -> str:
        """Take one more in; "", or why the setting has failed."""
        self.spent_s += measurement.seconds
        if measurement.failed or not measurement.samples_per_s > 0:
            self.failed[setting] = measurement
            self.blocks.pop(setting, None)
            return measurement.failed or "it gave no samples"
        self.blocks.setdefault(setting, []).append(measurement)
        return ""

    @property
    def tried(self) -> tuple[Setting, ...]:
        """All settings that were told."""
        return (*self.blocks, *self.failed)

    def known(self) -> list[KnownRate]:
        """Each setting that works, its blocks put together."""
        errors = [_block_error(block) for blocks in self.blocks.values() for block in blocks]
        squares, free = 0.0, 0
        for blocks in self.blocks.values():
            logs = [math.log(block.samples_per_s) for block in blocks]
            mean = statistics.fmean(logs)
            squares += sum((log - mean) ** 2 for log in logs)
            free += len(logs) - 1
        rates = []
        for setting, blocks in self.blocks.items():
            before = statistics.fmean(errors) if free else _block_error(blocks[0])
            # As if what trials say of themselves came from four blocks.
            variance = (3.0 * before**2 + squares) / (3.0 + free)
            rate = math.exp(statistics.fmean(math.log(b.samples_per_s) for b in blocks))
            error = math.sqrt(variance / len(blocks))
            rates.append(KnownRate(setting, rate, error, self.observed(setting)))
        return rates

    def observed(self, setting: Setting) -> Observed | None:
        """What a trial of the loader showed: the last one that showed anything."""
        blocks = self.of_loader(setting)
        return next(
            (block.observed for block in reversed(blocks) if block.observed is not None), None
        )

    def of_loader(self, setting: Setting) -> list[Measurement]:
        """The blocks of a setting and of its twin."""
        return [block for twin in both(setting) for block in self.blocks.get(twin, ())]

    def measured_twin(self, setting: Setting) -> Setting | None:
        """Of a setting and its twin the one that was told; None where neither was."""
        return next((twin for twin in both(setting) if twin in self.blocks), None)

    def derived(self) -> list[KnownRate]:
        """The twins of all that works, as far as they can be worked out."""
        return [twin for known in self.known() if (twin := self._twin_of(known)) is not None]

    def loaders(self) -> list[KnownRate]:
        """Each loader that works, as the better of its twins, whether it was told or not."""
        by_loader: dict[Setting, list[KnownRate]] = {}
        full = len(self.tried) >= TRIALS
        for known in self.known():
            twin = self._twin_of(known)
            if twin is not None and twin.setting not in self.blocks and full:
                twin = None  # it cannot be chosen, as it cannot be told any more
            mine = by_loader.setdefault(loader_of(known.setting), [])
            mine += [known] if twin is None else [known, twin]
        return [better(twins) for twins in by_loader.values()]

    def chosen(self) -> KnownRate | None:
        """The cheapest within 2 % of the fastest; perhaps one that is only worked out."""
        known = self.loaders()
        if not known:
            return None
        most = max(loader.rate for loader in known)
        return min(
            (loader for loader in known if loader.rate >= (1.0 - TIE) * most),
            key=lambda loader: cost(loader.setting),
        )

    def affordable(self) -> bool:
        """Whether a trial like the dearest so far still fits in the budget."""
        most = [sum(b.seconds for b in blocks[:1]) for blocks in self.blocks.values()]
        most += [failure.seconds for failure in self.failed.values()]
        return self.spent_s + max(most, default=0.0) <= self._problem.budget_s

    def _twin_of(self, known: KnownRate) -> KnownRate | None:
        """The other value of persistent_workers, worked out; None where that cannot be."""
        if not known.setting.num_workers or twin_of(known.setting) not in self._space:
            return None
        return worked_out(known, self._problem)


def _block_error(block: Measurement) -> float:
    """The standard deviation of the logarithm of its rate, by its own interval."""
    if block.low > 0 and math.isinf(block.high):  # noise as large as the mean time
        return math.log(block.samples_per_s / block.low) / Z95
    if 0 < block.low < block.high:
        return max(math.log(block.high / block.low) / (2.0 * Z95), 1e-4)
    return ERROR
