"""The measurements so far, combined by setting.

Each measurement is one more block of its setting. A setting that fails has no blocks.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection

from lotus.common.numbers.statistics import Z95
from lotus.settings.space import Measurement, Observed, Setting
from lotus.tune.strategies.equivalent_settings import both, twin_of, worked_out
from lotus.tune.strategies.known_rate import KnownRate
from lotus.tune.strategies.problem import Problem

ERROR = 0.02  # assumed error of a rate without an interval (standard deviation of its logarithm)


class Observations:
    """The blocks of settings that work, and the failures. `space` has the settings to choose."""

    def __init__(self, problem: Problem, space: Collection[Setting]) -> None:
        self._problem = problem
        self._space = space
        self.blocks: dict[Setting, list[Measurement]] = {}
        self.failed: dict[Setting, Measurement] = {}
        self.spent_s = 0.0

    def tell(self, setting: Setting, measurement: Measurement) -> str:
        """Add a measurement; return "", or why the setting has failed."""
        self.spent_s += measurement.seconds
        if measurement.failed or not measurement.samples_per_s > 0:
            self.failed[setting] = measurement
            self.blocks.pop(setting, None)
            return measurement.failed or "it gave no samples"
        self.blocks.setdefault(setting, []).append(measurement)
        return ""

    @property
    def tried(self) -> tuple[Setting, ...]:
        """All measured settings, failed ones included."""
        return (*self.blocks, *self.failed)

    def known_rates(self) -> list[KnownRate]:
        """Return the combined rate of each setting that works."""
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
            # The errors that trials report count as much as four blocks.
            variance = (3.0 * before**2 + squares) / (3.0 + free)
            rate = math.exp(statistics.fmean(math.log(b.samples_per_s) for b in blocks))
            error = math.sqrt(variance / len(blocks))
            rates.append(KnownRate(setting, rate, error, self.observed(setting)))
        return rates

    def observed(self, setting: Setting) -> Observed | None:
        """Return what the last trial of the loader observed, if any did."""
        blocks = self.of_loader(setting)
        return next(
            (block.observed for block in reversed(blocks) if block.observed is not None), None
        )

    def of_loader(self, setting: Setting) -> list[Measurement]:
        """Return the blocks of a setting and of its twin."""
        return [block for twin in both(setting) for block in self.blocks.get(twin, ())]

    def measured_twin(self, setting: Setting) -> Setting | None:
        """Return the measured one of a setting and its twin; None if neither was measured."""
        return next((twin for twin in both(setting) if twin in self.blocks), None)

    def derived(self) -> list[KnownRate]:
        """Return the computed rates of twins of settings that work."""
        return [twin for known in self.known_rates() if (twin := self._twin_of(known)) is not None]

    def affordable(self) -> bool:
        """Return True if another trial, as long as the longest so far, fits in the budget."""
        most = [sum(b.seconds for b in blocks[:1]) for blocks in self.blocks.values()]
        most += [failure.seconds for failure in self.failed.values()]
        return self.spent_s + max(most, default=0.0) <= self._problem.budget_s

    def _twin_of(self, known: KnownRate) -> KnownRate | None:
        """Return the computed rate of a setting's twin; None: unknown, or not in the space."""
        if not known.setting.num_workers or twin_of(known.setting) not in self._space:
            return None
        return worked_out(known, self._problem)


def _block_error(block: Measurement) -> float:
    """Return the standard deviation of the logarithm of a block's rate, from its own interval."""
    if block.low > 0 and math.isinf(block.high):  # noise as large as the mean time
        return math.log(block.samples_per_s / block.low) / Z95
    if 0 < block.low < block.high:
        return max(math.log(block.high / block.low) / (2.0 * Z95), 1e-4)
    return ERROR
