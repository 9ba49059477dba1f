"""Full collections of garbage in a loop: those of each `next` and each training step."""

from __future__ import annotations

from .. import full_collections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..recorder import Recorder
    from .iterations import Iteration


def next_begins(recorder: Recorder, iteration: Iteration) -> int:
    """Record what the step before a `next` had; return how many the process has had so far."""
    now = full_collections.number()
    begun_ns, before = iteration.step_begun
    iteration.step_begun = 0, 0
    if begun_ns:
        full_collections.log(recorder, full_collections.STEP, begun_ns, now - before)
    return now


def next_ended(
    recorder: Recorder, iteration: Iteration, start_ns: int, end_ns: int, before: int
) -> None:
    """Record what a `next` had, unless it made the batch: then the fetch has them."""
    now = full_collections.number()
    iteration.step_begun = end_ns, now
    if iteration.workers:
        full_collections.log(recorder, full_collections.NEXT, start_ns, now - before)
