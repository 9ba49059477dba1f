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
from functools import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .shares import Drawn, Shared


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
    from .guard import hook
    from .shares import Drawn

    kind = type(iterator)

    # Weakly: an iterator in a cycle would keep its workers until Python collects garbage.
    def _next_data() -> "Any":
        this: Any = reference()
        index = this._num_yielded
        try:
            data = kind._next_data(this)
        except StopIteration:
            weights.ended(reference)
            raise
        drawn = this._sampler_iter
        weights.delivered(drawn if type(drawn) is Drawn else shared, reference, index)
        return data

    reference = weakref.ref(iterator)
    iterator.__dict__["_next_data"] = hook(_next_data)


def backward(original: "Callable[..., Any]", weights: Weights) -> "Callable[..., Any]":
    """Hook for `torch.autograd.backward`, which `Tensor.backward` calls."""
    from .guard import hook

    torch: Any = sys.modules["torch"]
    within = torch._C._current_graph_task_id
    inside = False

    def backward(
        tensors: "Any", grad_tensors: "Any" = None, *args: "Any", **kwargs: "Any"
    ) -> "Any":
        nonlocal inside
        # In a pass already: of a checkpoint, or of a tensor of the program's own class.
        if inside or within() != -1 or (weight := weights.weight()) == 1.0:
            return original(tensors, grad_tensors, *args, **kwargs)
        if grad_tensors is None and kwargs.get("grad_variables") is not None:
            grad_tensors = kwargs.pop("grad_variables")
        inside = True
        try:
            return original(tensors, scaled(torch, tensors, grad_tensors, weight), *args, **kwargs)
        finally:
            inside = False

    return wraps(original)(hook(backward))


def scaled(torch: "Any", tensors: "Any", grads: "Any", weight: float) -> "Any":
    """The gradients at which a backward pass begins, times a weight; of what torch refuses, None.

    As `torch.autograd.backward` takes them: one or several tensors, gradients for all, some or
    none.
    """
    several = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
    if grads is None:
        given: list[Any] = [None] * len(several)
    else:
        given = list(grads) if isinstance(grads, (list, tuple)) else [grads]
    if len(given) != len(several):
        return grads
    made = []
    for tensor, grad in zip(several, given, strict=True):
        if grad is not None:
            made.append(grad * weight)
        elif (
            isinstance(tensor, torch.Tensor)
            and tensor.requires_grad
            and tensor.numel() == 1
            and tensor.is_floating_point()
        ):
            made.append(torch.full_like(tensor, weight, memory_format=torch.preserve_format))
        else:
            made.append(None)
    return made
