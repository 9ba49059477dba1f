"""Gradients of unequal shares, weighted so that their average is that of the whole global batch.

DistributedDataParallel averages over ranks what each computed from the mean over its own samples.
So the mean of rank r, over b samples of the B that all W ranks have, counts b * W / B. The weight
goes in where a backward pass begins, as the gradient of the loss itself: everything after it is
linear, so it costs one number a step, leaves buckets and communication hooks alone, and holds for
gradients that are accumulated over several passes. The loss that the program sees stays as it is.
"""

import _thread
import sys
import weakref

from ..common import patching
from ..common.guard import hook, ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .batch_shares import Drawn, Shared


class Weights:
    """Which batch of the shared loader is trained on, and what it counts."""

    def __init__(self, summed: bool) -> None:
        """`summed`: losses are sums over samples, which need no weight."""
        self.summed = summed
        self.passes = 0  # that computed gradients for batches of a shared loader
        self.clear()

    def clear(self) -> None:
        self.shared: Shared | Drawn | None = None
        self.iterator: Any = None  # a weak reference
        self.index, self.stopped = 0, False
        self.ahead: int | None = None  # by how many batches the program reads ahead
        self.unused = 0  # batches that were given since gradients were computed last
        self.unclear = False  # several were, so that it may train on another one than it seems
        self.thread = 0  # that was given the last one
        self.left: tuple[Any, int | None, bool] = (None, None, False)  # another iterator, its facts

    def delivered(self, shared: "Shared | Drawn", reference: "Any", index: int) -> None:
        """The program was given a batch: the index-th of an iterator's epoch."""
        if index == 0:
            if self.iterator is not reference:  # it may go on with the one before
                self.left = (self.iterator, self.ahead, self.unclear)
            self.ahead, self.unused, self.unclear = None, 0, False
        elif self.iterator is not reference:
            known, ahead, unclear = self.left
            self.ahead, self.unclear = (ahead, unclear) if known is reference else (None, False)
            self.unused = 0
        self.shared, self.iterator = shared, reference
        self.index, self.stopped = index, False
        self.unused += 1
        self.unclear = self.unclear or (self.unused > 1 and index != 1)
        self.thread = _thread.get_ident()

    def ended(self, reference: "Any") -> None:
        """The program was told that an epoch is over."""
        if self.iterator is reference:
            self.stopped = True

    def other_loader(self) -> None:
        """Another loader is iterated: does the program still train on the shared one?"""
        if self.stopped or self.iterator is None or self.iterator() is None:
            self.clear()

    def step(self) -> int:
        """The step of the epoch whose batch is trained on now.

        Programs that read one batch ahead have two when they first go backward.
        """
        if self.ahead is None:
            self.ahead = int(self.index == 1 or (self.index == 0 and self.stopped))
        return self.index - self.ahead + int(self.stopped and self.ahead == 1)

    def trained(self) -> "tuple[Any, int] | None":
        """(whose batch, its step) gradients are computed for now; None for other loaders."""
        if self.shared is None or self.iterator() is None:
            self.shared = None  # it holds the program's sampler and data
            return None
        step = self.step()
        return None if self.stopped and self.ahead == 0 else (self.shared, step)

    def weight(self) -> float:
        """What gradients that are computed now count."""
        trained = self.trained()
        if trained is None:
            return 1.0
        self.unused = 0
        self.passes += 1
        shared, step = trained
        taken = shared.taken(step)
        mine = taken[shared.rank]
        if self.summed:
            return float(mine > 0)
        return float(mine * len(taken) / sum(taken))


def watch(iterator: "Any", shared: "Shared", weights: Weights) -> None:
    """Have an iterator of the shared loader tell which batch it gives."""
    from .batch_shares import Drawn

    reference = weakref.ref(iterator)

    def around(call: "patching.Function") -> "patching.Function":
        def _next_data() -> "Any":
            this: Any = reference()
            index = this._num_yielded
            try:
                data = call()
            except StopIteration:
                weights.ended(reference)
                raise
            except BaseException as error:
                patching.hide(error)
                raise
            drawn = this._sampler_iter
            weights.delivered(drawn if type(drawn) is Drawn else shared, reference, index)
            return data

        return hook(_next_data)

    patching.listen_to(iterator, "_next_data", "balance", around)


def first_gradients(original: "patching.Function", weights: Weights) -> "patching.Function":
    """Hook for `torch.autograd._make_grads`: with which gradients a backward pass begins.

    `torch.autograd.backward` asks it in each pass, however and whenever the program got hold of
    that; it has returned when the pass begins, so no frame of ours is in what that warns of or
    raises. `torch.autograd.grad` asks it too, and leaves no gradients to be averaged.
    """
    torch: Any = sys.modules["torch"]
    within, autograd = torch._C._current_graph_task_id, vars(torch.autograd)

    def _make_grads(*args: "Any", **kwargs: "Any") -> "Any":
        try:
            made = original(*args, **kwargs)
        except BaseException as error:
            patching.hide(error)
            raise
        frame: Any = sys._getframe(1)
        while ours(frame):
            frame = frame.f_back
        begins = frame.f_code.co_name == "backward" and frame.f_globals is autograd
        # Not in a pass already (of this thread), as that of a checkpoint.
        if begins and within() == -1 and (weight := weights.weight()) != 1.0:
            return tuple(None if grad is None else grad * weight for grad in made)
        return made

    return hook(_make_grads)
