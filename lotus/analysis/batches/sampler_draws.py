"""How long the sampler took in `iter()`, where it draws the indices of an epoch's first batches."""

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import flag, integer, number, total
from lotus.analysis.common.scope import Scope


def drawn_ns(scope: Scope, loop: pd.DataFrame) -> float:
    """What of `iter()` the sampler took, nanoseconds; `loop`: `loop_times` of the loader.

    Known of a map-style data set whose workers are kept: after an epoch that came to its end,
    `iter()` does nothing else that takes long. The first one, which starts the workers, is taken to
    have drawn for as long as the others in the median. 0.0 where it is not known.
    """
    kept = bool(scope.settings.get("persistent_workers")) and scope.num_workers > 0
    if not kept or scope.settings.get("dataset_kind") != "map" or len(loop) < 2:
        return 0.0
    rows = pd.DataFrame(
        {
            **{name: integer(loop, name) for name in ("rank", "epoch")},
            "iter": np.nan_to_num(number(loop, "iter_ns")),
            "ended": flag(loop, "exhausted"),
        }
    ).sort_values(["rank", "epoch"])
    again = rows["rank"].eq(rows["rank"].shift()).to_numpy()
    alone = again & rows["ended"].shift(fill_value=False).to_numpy(np.bool_)
    if not alone.any():
        return 0.0
    took = rows["iter"].to_numpy()
    return total(np.minimum(took[~again], np.median(took[alone]))) + total(took[alone])
