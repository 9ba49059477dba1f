"""Gradients of unequal shares, weighted so that their average is that of the whole global batch.

DistributedDataParallel averages over ranks what each computed from the mean over its own samples.
So the mean of rank r, over b samples of the B that all W ranks have, counts b * W / B. The weight
goes in where a backward pass begins, as the gradient of the loss itself: everything after it is
linear, so it costs one number a step, leaves buckets and communication hooks alone, and holds for
gradients that are accumulated over several passes. The loss that the program sees stays as it is.
"""

import sys
import weakref
from functools import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .shares import Shared


class Weights:
    """Which batch of the shared loader is trained on, and what it counts."""

    def __init__(self, summed: bool) -> None:
        """`summed`: losses are sums over samples, which need no weight."""
        self.summed = summed
        self.clear()

    def clear(self) -> None:
        self.shared: Shared | None = None
        self.iterator: Any = None  # a weak reference
        self.index, self.stopped = 0, False
        self.ahead: int | None = None  # by how many batches the program reads ahead

    def delivered(self, shared: "Shared", reference: "Any", index: int) -> None:
        """The program was given a batch: the index-th of an iterator's epoch."""
        if index == 0 or self.iterator is not reference:
            self.ahead = None
        self.shared, self.iterator = shared, reference
        self.index, self.stopped = index, False

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
            self.ahead = int(self.index == 1)
        return self.index - self.ahead + int(self.stopped and self.ahead == 1)

    def weight(self) -> float:
        """What gradients that are computed now count."""
        if self.shared is None or self.iterator() is None:
            return 1.0  # nothing is read from the shared loader
        step = self.step()
        if self.stopped and self.ahead == 0:
            return 1.0
        taken = self.shared.taken(step)
        mine = taken[self.shared.rank]
        if self.summed:
            return float(mine > 0)
        return mine * len(taken) / sum(taken)


def watch(iterator: "Any", shared: "Shared", weights: Weights) -> None:
    """Have an iterator of the shared loader tell which batch it gives."""
    from .guard import hook

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
        weights.delivered(shared, reference, index)
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
