"""Weights the gradients of unequal shares so that their average is that of the global batch.

DistributedDataParallel averages gradients that each rank computed from the mean over its own
samples. If rank r has b of the B samples of all W ranks, its mean has to count b * W / B. The
weight is applied where a backward pass begins, as the gradient of the loss. Everything after that
is linear, so this costs one number per step, does not touch buckets and communication hooks, and
also holds for gradients that are accumulated over several passes. The program's loss is unchanged.
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
    """Keeps track of the batch of the shared loader that is trained on, and of its weight."""

    def __init__(self, summed: bool) -> None:
        """`summed`: losses are sums over samples, which need no weight."""
        self.summed = summed
        self.passes = 0  # backward passes for batches of a shared loader
        self.clear()

    def clear(self) -> None:
        self.shared: Shared | Drawn | None = None
        self.iterator: Any = None  # a weak reference
        self.index, self.stopped = 0, False
        self.ahead: int | None = None  # number of batches that the program reads ahead
        self.unused = 0  # batches delivered since the last backward pass
        self.unclear = False  # several were, so the batch that is trained on is uncertain
        self.thread = 0  # the thread to which the last batch was delivered
        # The previous iterator with its `ahead` and `unclear`.
        self.previous: tuple[Any, int | None, bool] = (None, None, False)

    def delivered(self, shared: "Shared | Drawn", reference: "Any", index: int) -> None:
        """Note that the program got a batch: the index-th of an iterator's epoch."""
        if index == 0:
            if self.iterator is not reference:  # it may continue with the previous one
                self.previous = (self.iterator, self.ahead, self.unclear)
            self.ahead, self.unused, self.unclear = None, 0, False
        elif self.iterator is not reference:
            previous_reference, ahead, unclear = self.previous
            self.ahead, self.unclear = (
                (ahead, unclear) if previous_reference is reference else (None, False)
            )
            self.unused = 0
        self.shared, self.iterator = shared, reference
        self.index, self.stopped = index, False
        self.unused += 1
        self.unclear = self.unclear or (self.unused > 1 and index != 1)
        self.thread = _thread.get_ident()

    def ended(self, reference: "Any") -> None:
        """Note that the program was told that an epoch is over."""
        if self.iterator is reference:
            self.stopped = True

    def other_loader(self) -> None:
        """Handle another loader being iterated: forget a shared one that is exhausted or gone."""
        if self.stopped or self.iterator is None or self.iterator() is None:
            self.clear()

    def step(self) -> int:
        """Return the step of the epoch whose batch is trained on now.

        A program that reads one batch ahead has two batches at its first backward pass.
        """
        if self.ahead is None:
            self.ahead = int(self.index == 1 or (self.index == 0 and self.stopped))
        return self.index - self.ahead + int(self.stopped and self.ahead == 1)

    def trained(self) -> "tuple[Any, int] | None":
        """Return (shares, step) of the batch that is trained on now; None for other loaders."""
        if self.shared is None or self.iterator() is None:
            self.shared = None  # it keeps the program's sampler and data alive
            return None
        step = self.step()
        return None if self.stopped and self.ahead == 0 else (self.shared, step)

    def weight(self) -> float:
        """Return the weight of the gradients that are computed now."""
        trained = self.trained()
        if trained is None:
            return 1.0
        self.unused = 0
        self.passes += 1
        shared, step = trained
        sizes = shared.taken(step)
        mine = sizes[shared.rank]
        if self.summed:
            return float(mine > 0)
        return float(mine * len(sizes) / sum(sizes))


def watch(iterator: "Any", shared: "Shared", weights: Weights) -> None:
    """Report each batch of an iterator of the shared loader to `weights`."""
    from .batch_shares import Drawn

    reference = weakref.ref(iterator)

    def around(call: "patching.Function") -> "patching.Function":
        def _next_data() -> "Any":
            owner: Any = reference()
            index = owner._num_yielded
            try:
                data = call()
            except StopIteration:
                weights.ended(reference)
                raise
            except BaseException as error:
                patching.hide(error)
                raise
            drawn = owner._sampler_iter
            weights.delivered(drawn if type(drawn) is Drawn else shared, reference, index)
            return data

        return hook(_next_data)

    patching.listen_to(iterator, "_next_data", "balance", around)


def first_gradients(original: "patching.Function", weights: Weights) -> "patching.Function":
    """Hook for `torch.autograd._make_grads`: weights the first gradients of a backward pass.

    `torch.autograd.backward` calls it in each pass, no matter how the program obtained `backward`.
    It has returned when the pass begins, so warnings and errors of the pass show no frame of ours.
    `torch.autograd.grad` calls it too, but leaves no gradients to be averaged.
    """
    torch: Any = sys.modules["torch"]
    within, autograd = torch._C._current_graph_task_id, vars(torch.autograd)

    def _make_grads(*args: "Any", **kwargs: "Any") -> "Any":
        try:
            gradients = original(*args, **kwargs)
        except BaseException as error:
            patching.hide(error)
            raise
        frame: Any = sys._getframe(1)
        while ours(frame):
            frame = frame.f_back
        begins = frame.f_code.co_name == "backward" and frame.f_globals is autograd
        # Not inside another pass of this thread, as a checkpoint's is.
        if begins and within() == -1 and (weight := weights.weight()) != 1.0:
            return tuple(None if grad is None else grad * weight for grad in gradients)
        return gradients

    return hook(_make_grads)
