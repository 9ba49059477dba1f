"""Grid search, the exhaustive baseline: every setting of the space in its order."""

from lotus.settings.space import Space
from lotus.tune.strategies.stepwise import Remembering, Steps


class Grid(Remembering):
    """Measures every setting of the space in turn, as the paper's grid search does."""

    name = "grid"

    def __init__(self, space: Space) -> None:
        super().__init__(self._all(space))

    def _all(self, space: Space) -> Steps:
        number = 0
        for number, setting in enumerate(space.settings(), 1):
            yield (
                setting,
                f"setting {number} of the grid; nothing is ruled out before it is measured",
            )
        return f"all {number} settings of the grid are measured"
