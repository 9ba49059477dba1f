"""Random search without replacement: the uninformed baseline."""

import random

from lotus.settings.space import Space
from lotus.tune.strategies.stepwise import Remembering, Steps


class RandomSearch(Remembering):
    """Draws settings until the space is exhausted; the caller limits the budget."""

    name = "random"

    def __init__(self, space: Space, seed: int = 0) -> None:
        super().__init__(self._drawn(space, seed))

    def _drawn(self, space: Space, seed: int) -> Steps:
        settings = list(space.settings())
        random.Random(seed).shuffle(settings)
        for number, setting in enumerate(settings, 1):
            yield (
                setting,
                f"draw {number} of {len(settings)} with seed {seed}; nothing is ruled out",
            )
        return f"all {len(settings)} settings of the space are drawn"
