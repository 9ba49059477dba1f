"""One reading of a loader, and which of those under way is the one that a model is trained on."""

import sys
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_PASSED_OVER = 8  # asks of another loader, after which the one that led was left


class Pass:
    """A loader that is read, from its first batch to its last."""

    def __init__(self, loader: "Any", agreed: "Any") -> None:
        """`agreed`: for which it is read, another one where a model was made since."""
        self.loader, self.agreed = weakref.ref(loader), agreed
        self.begin()

    def begin(self) -> None:
        """It starts anew: with persistent workers an iterator has many."""
        self.begun = self.over = self.used = False
        self.trained: Any = None  # what the model was when it began
        self.met: Any = None  # how often the ranks had met
        self.passed_over = 0


def leads(agreed: "Any", of: Pass, model: "Any") -> bool:
    """Whether this is the one that the model is trained on; asked once for each batch.

    The agreed loader is. So is another one once the model has changed while it was read, which it
    does not while one looks at what it learnt; but of two that are read in turn it is the first.
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
    """What is other after a step: how often parameters were written, or where gradients are."""
    grads = [one.grad for one in model.module.parameters()]
    return [
        written(model),
        [None if one is None else (one._version, _place(one)) for one in grads],
    ]


def written(model: "Any") -> int:
    """How often its parameters were written."""
    return sum(int(one._version) for one in model.module.parameters())


def _place(grad: "Any") -> int:
    return 0 if grad.is_sparse else int(grad.data_ptr())


def meetings(but: "Any") -> "int | None":
    """How many collective operations the program had in all its groups; None: not known.

    `but`: the group that is not the program's.
    """
    world: Any = sys.modules["torch.distributed.distributed_c10d"]._world
    try:
        groups = [one for one in world.pg_map if one is not but]
        return sum(int(one._get_sequence_number_for_group()) for one in groups)
    except Exception:
        return None
