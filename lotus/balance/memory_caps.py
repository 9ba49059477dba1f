"""The number of samples that a rank's memory allows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from lotus.balance.rank_measurements import Job
from lotus.common.errors import LotusError


@dataclass(frozen=True)
class Cap:
    """The most samples of a rank; None if not limited. `why` says in words why."""

    samples: int | None
    why: str


def caps(job: Job, limits: Mapping[int, int]) -> list[Cap]:
    """Return each rank's cap: the given one, else what its host's memory allows.

    All memory of a rank is assumed to grow with its batch, so the cap may be too low but not too
    high. The memory of accelerators is not traced. Raises LotusError for ranks that do not exist.
    """
    for number in limits:
        if number >= len(job.ranks):
            raise LotusError(f"--most {number}=...: the run has ranks 0 to {len(job.ranks) - 1}")
    result = []
    for rank in job.ranks:
        if rank.rank in limits:
            result.append(Cap(limits[rank.rank], "as given"))
        elif math.isnan(rank.memory_bytes) or math.isnan(rank.memory_limit):
            result.append(Cap(None, "its memory was not read"))
        else:
            most = math.floor(rank.batch * rank.memory_limit / max(rank.memory_bytes, 1.0))
            # The present batch did fit.
            result.append(Cap(max(most, rank.batch), "its share of the host's memory"))
    return result
