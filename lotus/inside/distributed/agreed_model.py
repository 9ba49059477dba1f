"""The model and the loader for which all ranks have agreed on a mode."""

import sys
import weakref

from . import ddp_model
from .averaging import Averaging
from .loader_pass import LoaderPass, meetings
from .shared_queue_sampler import SharedQueueSampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Agreed:
    """The changes that a mode has made to a model and a loader, and how to undo them."""

    def __init__(self, model: "Any", loader: "Any", words: str, made: int) -> None:
        self.model, self.loader = weakref.ref(model), weakref.ref(loader)
        self.words = words
        self.made = made  # number of models that had been made by then
        self.rounds: Averaging | None = None
        self.queue: SharedQueueSampler | None = None
        self.leader: LoaderPass | None = None  # the iteration whose batches trigger rounds
        self.uneven = False  # sync: whether it trains within Join
        self.joined: Any = None  # the open Join
        self.grouped: Any = None  # hybrid: the state of torch's communication hook
        self.buffers = True  # the program's `broadcast_buffers`
        self.lifted = False
        self.written: int | None = None  # writes to parameters at the end of the last epoch

    def share_queue(self, loader: "Any", store: "Any") -> None:
        """Hand out batches on demand if the loader's sampler supports that."""
        utils: Any = sys.modules["torch.utils.data"]
        sampler: Any = sys.modules.get("torch.utils.data.distributed")
        batches = loader.batch_sampler
        if (
            sampler is None
            or type(loader.sampler) is not sampler.DistributedSampler
            or type(batches) is not utils.BatchSampler
            or batches.sampler is not loader.sampler
        ):
            return
        norms = bool(ddp_model.local_norms(self.model()))
        queue = SharedQueueSampler(
            loader.sampler, loader.batch_size, loader.drop_last, store, norms
        )
        batches.sampler = self.queue = queue

    def restore_sampler(self) -> None:
        """Give the loader its own sampler again."""
        loader = self.loader()
        if loader is not None and self.queue is not None:
            loader.batch_sampler.sampler = loader.sampler
            self.queue = None

    def lift(self, model: "Any", alone: bool) -> None:
        """Undo the mode before anything was trained.

        `alone`: the mode lets ranks take steps independently.
        """
        self.lifted, self.rounds, self.uneven = True, None, False
        if self.queue is not None:
            self.queue.equal_counts = True
        if self.grouped is not None:
            self.grouped.start_localSGD_iter = sys.maxsize
        if alone:
            model.require_backward_grad_sync, model.broadcast_buffers = True, self.buffers

    def detects_meetings(self, of: LoaderPass, first: bool) -> bool:
        """Return whether it turns out now that the program synchronizes ranks in its steps.

        All ranks then need the same number of batches.
        """
        queue, rounds = self.queue, self.rounds
        if queue is None or rounds is None or of.loader() is not self.loader():
            return False
        met, of.met = of.met, meetings(rounds.group)
        if first:
            return False
        if not of.used:
            of.used = True
            queue.used()
        if met != of.met and not queue.equal_counts:
            queue.equal_counts = True
            return True
        if queue.equal_counts is None:
            queue.equal_counts = False
        return False
