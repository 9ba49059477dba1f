"""Draws indices from the program's sampler once and repeats them for all candidates.

They are drawn in a forked child, which leaves the sampler and the generators of the program alone.
"""

from __future__ import annotations

import time

from ..processes.forked_child import once
from ..processes.watchdog import CandidateError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MOST = 4096  # batches
MOST_S = 2.0
_LIMIT_S = 60.0  # for the first batch: a sampler may read a file


def draw(sampler: Any) -> tuple[list[Any], bool]:
    """Return (batches of an epoch, whether these are all). Raises CandidateError."""

    def drawn() -> tuple[list[Any], bool]:
        batches: list[Any] = []
        until = time.monotonic() + MOST_S
        for batch in sampler:
            batches.append(batch)
            if len(batches) == MOST or time.monotonic() > until:
                return batches, False
        return batches, True

    try:
        batches, whole = once(drawn, _LIMIT_S, "the program's sampler")
    except CandidateError as error:
        raise CandidateError(f"its sampler cannot be asked: {error}") from None
    if not batches:
        raise CandidateError("its sampler gives no batch")
    return batches, whole


class Cycle:
    """A sampler that repeats the same batches of indices for ever."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.batches

    def __len__(self) -> int:
        return len(self.batches)
