"""A model, and the loader that it is trained on first, once all ranks have agreed on a mode."""

import sys
import weakref

from . import ddp_model
from .averaging import Rounds
from .loader_pass import Pass, meetings
from .shared_queue_sampler import Dealt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Agreed:
    """What a mode has put on them, and takes back where it must."""

    def __init__(self, model: "Any", loader: "Any", words: str, made: int) -> None:
        self.model, self.loader = weakref.ref(model), weakref.ref(loader)
        self.words = words
        self.made = made  # how many models there had been
        self.rounds: Rounds | None = None
        self.dealt: Dealt | None = None
        self.leader: Pass | None = None  # where it is asked, rounds are
        self.uneven = False  # sync: within Join
        self.joined: Any = None  # the Join that is open
        self.grouped: Any = None  # hybrid: the state of torch's hook
        self.buffers = True  # whether the program has them broadcast
        self.lifted = False
        self.written: int | None = None  # how often parameters were when an epoch had ended

    def deal(self, loader: "Any", store: "Any") -> None:
        """Have batches go to the rank that asks next, where that can be."""
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
        dealt = Dealt(loader.sampler, loader.batch_size, loader.drop_last, store, norms)
        batches.sampler = self.dealt = dealt

    def deal_no_more(self) -> None:
        """The loader has the program's own sampler again."""
        loader = self.loader()
        if loader is not None and self.dealt is not None:
            loader.batch_sampler.sampler = loader.sampler
            self.dealt = None

    def lift(self, model: "Any", alone: bool) -> None:
        """Have the program go on as it is written: nothing was trained on so far.

        alone: the mode lets ranks make steps without each other.
        """
        self.lifted, self.rounds, self.uneven = True, None, False
        if self.dealt is not None:
            self.dealt.level = True
        if self.grouped is not None:
            self.grouped.start_localSGD_iter = sys.maxsize
        if alone:
            model.require_backward_grad_sync, model.broadcast_buffers = True, self.buffers

    def levels(self, of: Pass, first: bool) -> bool:
        """Whether it shows now that ranks meet in their steps: each must have as many batches."""
        dealt, rounds = self.dealt, self.rounds
        if dealt is None or rounds is None or of.loader() is not self.loader():
            return False
        met, of.met = of.met, meetings(rounds.group)
        if first:
            return False
        if not of.used:
            of.used = True
            dealt.used()
        if met != of.met and not dealt.level:
            dealt.level = True
            return True
        if dealt.level is None:
            dealt.level = False
        return False
