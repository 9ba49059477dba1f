"""Waits that steps hide which other programs slow down, and what they would be for."""

import numpy as np

from lotus.analysis.common.columns import Floats, ratio, total
from lotus.analysis.replay.undisturbed_epochs import UndisturbedLoop
from lotus.common.formatting import share

_LITTLE = 0.02  # of that loop: less is not said


def title_with_hidden(title: str, hidden_ns: float, loop: UndisturbedLoop) -> str:
    """A cause's title with its share of the loop without other programs, where that is known."""
    part = ratio(hidden_ns, loop.wait_ns + loop.step_ns) if hidden_ns > 0 else 0.0
    told = f", {share(part)} of the loop without other programs" if part >= _LITTLE else ""
    return title + told


class HiddenWaits:
    """Waits of the undisturbed loop that no cause has taken, but for those for the sending.

    They are divided as the making of batches is, without the time in which others had its core.
    """

    def __init__(self, undisturbed: UndisturbedLoop, parts: Floats, own_part: Floats) -> None:
        """`parts`: the making of each batch by component (n, c), ns; `own_part`: of each (n,)."""
        self.left_ns = undisturbed.wait_ns - undisturbed.sending_ns
        self._parts, self._own_part = parts, own_part
        self._making = self._made(own_part)

    def _made(self, part: Floats) -> list[float]:
        """The sum of each component, of which only this part of each batch (n,) counts."""
        return [total(self._parts[:, each] * part) for each in range(self._parts.shape[1])]

    def take_part(self, part: Floats) -> float:
        """Take the waits for this part of the making of each batch (n,), ns."""
        return self.take(np.array(self._made(self._own_part * part)))

    def of_component(self, place: int) -> float:
        """How long the loop would wait for what is left of a component, ns."""
        making = sum(self._making)
        return max(self.left_ns, 0.0) * self._making[place] / making if making > 0 else 0.0

    def take(self, parts: Floats) -> float:
        """Take the waits for this part of each component (c,), ns; return how long they are."""
        making = sum(self._making)
        of_it = min(float(parts.sum()) / making, 1.0) if making > 0 else 0.0
        ns = max(self.left_ns, 0.0) * of_it
        self.left_ns -= ns
        self._making = [
            max(made - part, 0.0) for made, part in zip(self._making, parts, strict=True)
        ]
        return ns
