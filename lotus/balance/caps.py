"""How many samples a rank's memory allows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from lotus.balance.measured import Job
from lotus.errors import LotusError


@dataclass(frozen=True)
class Cap:
    """The most samples of a rank; None: none is known. `why` in words."""

    samples: int | None
    why: str


def caps(job: Job, given: Mapping[int, int]) -> list[Cap]:
    """Of each rank: what was given, else what its host's memory allows.

    All of a rank's memory is taken to grow with its batch, so it may be less than would fit, never
    more. What an accelerator's memory holds is not traced. Raises LotusError for ranks that there
    are not.
    """
    for rank in given:
        if rank >= len(job.ranks):
            raise LotusError(f"--most {rank}=...: the run has ranks 0 to {len(job.ranks) - 1}")
    found = []
    for one in job.ranks:
        if one.rank in given:
            found.append(Cap(given[one.rank], "as given"))
        elif math.isnan(one.memory_bytes) or math.isnan(one.memory_limit):
            found.append(Cap(None, "its memory was not read"))
        else:
            most = math.floor(one.batch * one.memory_limit / max(one.memory_bytes, 1.0))
            # It ran with what it has.
            found.append(Cap(max(most, one.batch), "its share of the host's memory"))
    return found
