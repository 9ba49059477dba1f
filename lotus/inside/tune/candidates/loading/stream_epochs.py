"""Compares epochs of an iterable data set with different numbers of workers.

If a data set does not divide its samples among its workers, each worker yields all of them. This
is tested by running an epoch with each number of workers and comparing the hashes of the samples,
as multisets.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from functools import partial

from ..processes.forked_child import once
from ..processes.watchdog import CandidateError, Watchdog, interrupts, words
from ..trial_requests import EpochComparison
from . import batch_contents
from .candidate_loader import SEED, Loading, copy_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    _Counted = tuple[Counter[bytes], int]

_WHAT = "an epoch"
_MORE_S = 1.0  # for a batch: a worker that is stopped while sending it writes to stderr
_SHORT = 8  # bytes of a hash that are kept: enough for a billion samples without a collision


def compare(
    loader: Any, own: dict[str, Any], other: dict[str, Any], limit_s: float
) -> EpochComparison:
    """Compare an epoch with either setting, within about `limit_s`."""
    epochs: dict[int, tuple[int, int]] = {}
    why = _why_not(loader, own, other, limit_s, epochs)
    return EpochComparison(why, tuple((workers, *each) for workers, each in epochs.items()))


def _why_not(
    loader: Any,
    own: dict[str, Any],
    other: dict[str, Any],
    limit_s: float,
    epochs: dict[int, tuple[int, int]],
) -> str:
    """Return why the epochs differ, or "". Store (samples, batches) by workers in `epochs`."""
    until = time.monotonic() + limit_s
    mine, yours = own["num_workers"], other["num_workers"]
    try:
        first, batches = _epoch(loader, own, SEED, until)
        epochs[mine] = (first.total(), batches)
        second, batches = _epoch(loader, other, SEED, until)
        epochs[yours] = (second.total(), batches)
        if first == second:
            return ""
        counts = (
            f"an epoch has {first.total()} samples with {_workers(mine)} and {second.total()} "
            f"with {_workers(yours)}"
        )
        if first.total() != second.total():
            return counts
        if _epoch(loader, own, SEED + 1, until)[0] != first:
            return (
                f"two epochs with {_workers(mine)} differ already, as with random augmentation: "
                "it cannot be told whether other workers keep the samples"
            )
    except CandidateError as error:
        return f"the epochs could not be compared within the budget: {error}"
    common = (first & second).total()
    return (
        f"of the {first.total()} samples of an epoch with {_workers(mine)}, {common} come with "
        f"{_workers(yours)}"
    )


def _workers(count: int) -> str:
    return f"{count} worker" if count == 1 else f"{count} workers"


def _epoch(loader: Any, setting: dict[str, Any], seed: int, until: float) -> _Counted:
    """Return the samples of an epoch, by hash, and its number of batches. Raises CandidateError."""
    left_s = until - time.monotonic()
    if left_s <= 0:
        raise CandidateError("an epoch with each number of workers takes too long")
    made = copy_of(loader, {**setting, "pin_memory": False}, None, seed)
    if made.num_workers:
        return _counted(made, left_s)
    counted: _Counted = once(partial(_seeded, made, seed, left_s), left_s + 2 * _MORE_S, _WHAT)
    return counted


def _seeded(made: Any, seed: int, limit_s: float) -> _Counted:
    """Count in a child with seeded generators, from which the data set draws without workers."""
    random.seed(seed)
    sys.modules["torch"].manual_seed(seed)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
    return _counted(made, limit_s)


def _counted(made: Any, limit_s: float) -> _Counted:
    until = time.monotonic() + limit_s
    watchdog = Watchdog(limit_s + _MORE_S, _WHAT)
    loading = Loading(made, None, lambda text: None)

    def count() -> _Counted:
        samples: Counter[bytes] = Counter()
        batches = 0
        loading.start(watchdog)
        for batch in loading.rest():
            batches += 1
            samples.update(digest[:_SHORT] for digest in batch_contents.hashes(batch))
            if time.monotonic() > until:
                raise CandidateError(f"{_WHAT} took longer than {limit_s:.3g} s")
        return samples, batches

    try:
        return watchdog.run(count)
    except CandidateError:
        raise
    except Exception as error:
        if interrupts(error):
            raise
        raise CandidateError(words(error)) from None
    finally:
        loading.shut(0)
