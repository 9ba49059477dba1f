"""Waits that steps hide which other programs slow down, and what they would be for."""

from functools import cached_property

import numpy as np

from lotus.analysis.common.columns import Floats, total
from lotus.analysis.replay.undisturbed_epochs import UndisturbedLoop


class HiddenWaits:
    """Waits of the undisturbed loop that no cause has taken, but for those for the sending.

    They are divided as the making of batches is, without the time in which others had its core.
    """

    def __init__(self, undisturbed: UndisturbedLoop, parts: Floats, own_part: Floats) -> None:
        """`parts`: the making of each batch by component (n, c), ns; `own_part`: of each (n,)."""
        self.left_ns = undisturbed.wait_ns - undisturbed.sending_ns
        self._parts, self._own_part = parts, own_part

    @cached_property
    def _making(self) -> Floats:
        """What is left of the making by component (c,), ns."""
        return self._made(self._own_part)

    def _made(self, part: Floats) -> Floats:
        """The sum of each component (c,), of which only this part of each batch (n,) counts."""
        return np.array([total(column * part) for column in self._parts.T])

    def of_component(self, place: int) -> float:
        """How long the loop would wait for what is left of a component, ns."""
        return self._waits(self._making[place]) if self.left_ns > 0 else 0.0

    def take(self, parts: Floats) -> float:
        """Take the waits for this part of each component (c,), ns; return how long they are."""
        if not self.left_ns > 0:
            return 0.0
        ns = self._waits(parts.sum())
        self.left_ns -= ns
        self._making = np.maximum(self._making - parts, 0.0)
        return ns

    def take_part(self, part: Floats) -> float:
        """Take the waits for this part of the making of each batch (n,), ns."""
        return self.take(self._made(self._own_part * part)) if self.left_ns > 0 else 0.0

    def _waits(self, making_ns: float) -> float:
        """How much of the waits are for so much of the making, ns."""
        making = float(self._making.sum())
        return self.left_ns * min(float(making_ns) / making, 1.0) if making > 0 else 0.0
