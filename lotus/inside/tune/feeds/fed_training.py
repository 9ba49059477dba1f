"""Times training with data of one kind and another, for `lotus advise` and `lotus plan`.

real  what the loader gives
same  the samples of a few batches, made again and again: their files are in memory
unsent  the same samples, or those of a stream, whose batches the workers make and do not send: the
      program gets those that it received before
free  batches that were received before: the loader does nothing
exact, all  what the loader gives, made with alternatives: see switched_alternatives.py
filling  what the loader gives; its samples are cached anew: see switched_cache.py
cached  the samples of the last block of filling, from the cache
"""

from __future__ import annotations

import sys
import threading
import weakref

from ...apply import epoch_handover
from ..observation.idle_workers import wait_until_idle
from ..observation.observer import KEY
from ..training.timed_training import TimedTraining
from . import switched_fetches
from .endless_indices import EndlessIndices
from .repeated_batches import RepeatedBatches

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..candidates.trial_requests import Feed, TrainedBatches

_WARM = 2  # batches after a change that are not counted, besides those in flight
_AGAIN = 4  # batches of indices that are repeated, at least


class FedTraining(TimedTraining):
    """Times blocks of the program's own steps, with data of one kind in each.

    An epoch of a map-style data set does not end meanwhile. The program must not train on
    afterwards as if nothing had been: it is ended.
    """

    def __init__(self, loader: Any, iterator: Any) -> None:
        super().__init__(loader, iterator)
        self.kept = RepeatedBatches()
        switched = switched_fetches.active
        # With a cache no batch is given again, and memory is kept for the cache.
        self._keeps = switched is None or not switched.has("cached")
        self._indices: EndlessIndices | None = None  # of an epoch that goes on for ever
        self._kind = "real"
        self._unsent = False  # whether the batch that is received now was not sent
        self._sent = 0  # batches that were counted and should not have been sent
        self._mixed = 0  # batches of another kind that are in flight
        self._adopt(iterator)

    def _adopt(self, iterator: Any) -> None:
        """Time this iterator from now on."""
        self.iterator = weakref.ref(iterator)
        iterator.__dict__[KEY] = self
        self._indices = None
        self._wrap(iterator)

    def _wrap(self, iterator: Any) -> None:
        """Let its epoch go on for ever, if it can: else it ends, and the next one goes on."""
        again = max(_AGAIN, 2 * _in_flight(iterator))
        if epoch_handover.why_not_fed(self.loader, iterator):
            if not _is_stream(iterator):
                return
            again = 0
        # Workers may have all batches of a short epoch in flight: then none of it would be left.
        afresh = self._another_epoch if again else None
        indices = EndlessIndices(iterator._sampler_iter, again, afresh=afresh)
        self._indices = iterator._sampler_iter = indices
        self._set()
        if iterator._num_workers and not iterator._tasks_outstanding:
            # The program has all of its epoch: without a request the iterator would end.
            for _ in range(_in_flight(iterator)):
                iterator._try_put_index()

    def _another_epoch(self) -> Any:
        return iter(self.loader._index_sampler)

    def _set(self) -> None:
        """Let the indices be those of the kind of data."""
        if self._indices is None:
            return
        if self._kind == "filling":
            self._indices.mark()
        self._indices.repeats = self._kind in ("same", "unsent", "cached")
        self._indices.unsent = self._kind == "unsent"

    def fetch_begins(self) -> None:
        """The program's call of `next` begins: persistent workers may have begun another epoch."""
        iterator = self.iterator()
        if iterator is None or self._indices is None:
            return
        if iterator._sampler_iter is not self._indices:
            self._wrap(iterator)

    def epoch_ended(self) -> None:
        """An epoch that cannot go on has ended; the next one will be timed."""
        self._returned = None

    def feed(self, iterator: Any, request: Feed) -> None:
        """Begin a block."""
        changes, self._kind = request.kind != self._kind, request.kind
        self.begin(request.batches, _WARM, request.seconds)
        iterator.__dict__[KEY] = self
        self._sent = 0
        self._set()
        if switched_fetches.active is not None:
            switched_fetches.active.switch(request.kind)
        if request.kind == "free":
            wait_until_idle(iterator)
            self.replacement = self._given
            return
        self.replacement = None
        if changes:
            self._mixed = _in_flight(iterator)

    def _given(self) -> tuple[Any]:
        return (self.kept.give(),)

    def in_place_of_unsent(self) -> tuple[Any]:
        """Return a batch for one that its worker made and did not send."""
        self._unsent = True
        return (self.kept.give(),)

    def epoch_begins(self, loader: Any, iterator: Any) -> None:
        """Go on with the next epoch, if the program has left the one before."""
        if self.in_next == threading.get_ident() or loader is not self.loader:
            return
        self._returned = None  # the time between two epochs is no step
        self._adopt(iterator)
        self._discard = max(self._discard, _WARM)
        self._mixed = _in_flight(iterator)

    def counts(self, wait_s: float) -> bool:
        """Return whether the batch that was just received is timed."""
        if self.replacement is None and self._mixed:
            self._mixed -= 1
            return False
        if self._discard:
            self._discard -= 1
            return False
        return True

    def batch_received(self, start: float, now: float, batch: Any) -> None:
        """Note a batch; one that is given again takes no wait."""
        unsent, self._unsent = self._unsent, False
        again = unsent or self.replacement is not None
        if self._keeps and not again and not self.kept.full():
            self.kept.keep(batch)
        counted = len(self.waits)
        super().batch_received(now if self.replacement is not None else start, now, batch)
        self._sent += self._kind == "unsent" and not unsent and len(self.waits) > counted

    def reply(self) -> TrainedBatches:
        """Return the batches of complete steps; `over`: the epoch has begun again."""
        self.replacement = None
        self.over = self._indices is not None and self._indices.wrapped
        if self._sent:
            self.refused = "its workers send all that they make"
        if switched_fetches.active is not None:
            self.refused = self.refused or switched_fetches.active.problem()
        return super().reply()

    def release_workers(self, begins: Any = None) -> None:
        """Let the program have its own batches."""
        self.replacement = None


def why_not(observer: object, iterator: Any, kind: str) -> str:
    """Return why the program cannot go on with data of this kind; "" if it can."""
    loader: Any = getattr(observer, "loader", None)
    if kind == "unsent" and not iterator._num_workers:
        return "there are no workers, so nothing is sent"
    if kind in ("same", "unsent", "filling", "cached"):
        why = epoch_handover.why_not_fed(loader, iterator)
        if why and not (kind == "unsent" and _is_stream(iterator)):
            return why
    switched = switched_fetches.active
    if switched is not None and switched.has(kind):
        return switched.why_not(loader, kind)
    if kind in ("exact", "all", "filling", "cached"):
        return "there are none"
    if kind in ("free", "unsent") and not (isinstance(observer, FedTraining) and observer.kept):
        return "no batch was received before"
    return ""


def _is_stream(iterator: Any) -> bool:
    """Return whether this is torch's own iterator, with workers, of an iterable data set."""
    module: Any = sys.modules["torch.utils.data.dataloader"]
    return type(iterator) is module._MultiProcessingDataLoaderIter and iterator._dataset_kind == 1


def _in_flight(iterator: Any) -> int:
    """Return how many batches are requested from the workers before the first is taken."""
    return int(iterator._num_workers * getattr(iterator, "_prefetch_factor", 0))
