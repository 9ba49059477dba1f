"""Tracks iterations of loaders, and decides on which of them a model is trained."""

import sys
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_PASSED_OVER = 8  # batches of another loader after which the leading iteration was abandoned


class LoaderPass:
    """One iteration of a loader, from its first batch to its last."""

    def __init__(self, loader: "Any", agreed: "Any") -> None:
        """`agreed` is what it is iterated for; it is replaced when another model is made."""
        self.loader, self.agreed = weakref.ref(loader), agreed
        self.begin()

    def begin(self) -> None:
        """Reset for a new epoch; with persistent workers an iterator has several."""
        self.begun = self.over = self.used = False
        self.trained: Any = None  # the state of the model when it began
        self.met: Any = None  # number of collective operations so far
        self.passed_over = 0


def leads(agreed: "Any", of: LoaderPass, model: "Any") -> bool:
    """Return whether the model is trained on this iteration; called once for each batch.

    It is if the loader is the agreed one. It also is once the model has changed during the
    iteration, which does not happen in validation. Of two interleaved iterations the first leads.
    """
    leader = agreed.leader
    if leader is of:
        of.passed_over = 0
        return True
    if leader is not None and not leader.over:
        leader.passed_over += 1
        if leader.passed_over <= _PASSED_OVER:
            return False
    if of.loader() is not agreed.loader():
        now = _state(model)
        if of.trained is None:
            of.trained = now
        if of.trained == now:
            return False
    agreed.leader = of
    of.passed_over = 0
    return True


def _state(model: "Any") -> "list[Any]":
    """Return what changes with a training step: writes to parameters, and gradients."""
    grads = [parameter.grad for parameter in model.module.parameters()]
    return [
        written(model),
        [None if grad is None else (grad._version, _address(grad)) for grad in grads],
    ]


def written(model: "Any") -> int:
    """Return how often its parameters were written."""
    return sum(int(parameter._version) for parameter in model.module.parameters())


def _address(grad: "Any") -> int:
    return 0 if grad.is_sparse else int(grad.data_ptr())


def meetings(but: "Any") -> "int | None":
    """Return the number of collective operations in all groups of the program; None: unknown.

    `but` is the group of lotus, which is left out.
    """
    world: Any = sys.modules["torch.distributed.distributed_c10d"]._world
    try:
        groups = [group for group in world.pg_map if group is not but]
        return sum(int(group._get_sequence_number_for_group()) for group in groups)
    except Exception:
        return None
