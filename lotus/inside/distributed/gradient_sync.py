"""When the gradients of a DistributedDataParallel model were computed, and when averaged.

torch's engine calls callbacks in the order in which they were queued, after a backward pass has
computed all its gradients. DDP queues one, which waits for its all-reduces, when its last bucket
is full; ours are queued before, where backward reaches the model's output. So the first of ours
runs when this rank has all gradients, and queues another one that runs after DDP's. Nothing of
the model, its gradients, its hooks or its communication is replaced.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from functools import partial
from itertools import islice

from ..common import guard
from ..common.clocks import clock
from ..common.guard import ask, edge, hide_our_frames, hook
from . import ddp_model

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any, Protocol

    class Recorder(Protocol):
        """What takes the times: the recorder of a trace, or the rebalancing of shares."""

        pid: int

        @property
        def on(self) -> bool: ...
        def fault(self, error: Exception) -> None: ...
        def event(self, fact: dict[str, Any]) -> None: ...
        def look_around(self) -> None: ...
        def add_sync(self, step: int, start: int, ready: int, end: int, models: int) -> None: ...


_MOST_OPEN = 8  # backward passes that began and did not end, as where one raised


class Model:
    """A DDP model that lives. `expecting` is what its reducer knows: a forward announced the
    backward pass that averages, and none has ended since."""

    __slots__ = ("expecting", "hook", "reference")

    def __init__(self, reference: weakref.ref[Any], gradients: Gradients) -> None:
        self.reference = reference
        self.expecting = False
        self.hook = partial(edge, gradients.recorder, gradients.reached, self)


class Pass:
    """One backward pass: its times so far (start, ready) and the models that average in it."""

    __slots__ = ("models", "nested", "times")

    def __init__(self, start: int) -> None:
        self.times: deque[int] = deque((start,))
        self.models: list[Model] = []
        self.nested = False  # part of it ran as a backward pass of its own


class Gradients:
    """The backward passes of this process."""

    def __init__(
        self, recorder: Recorder, torch: Any, modules: tuple[ModuleType, ...] = ()
    ) -> None:
        """`torch` need not be imported as a whole yet. Raises AttributeError for an unknown one.

        `modules` hold what `recorder` runs.
        """
        self.modules = modules
        self.recorder = recorder
        self.torch = torch
        self.task: Callable[[], int] = torch._C._current_graph_task_id
        self.queue: Callable[[Any], None] | None = None
        self.said: set[str] = set()
        self._forget()

    def _forget(self) -> None:
        self.pid = self.recorder.pid
        self.models: dict[int, Model] = {}  # by id
        self.passes: dict[int, Pass] = {}  # by the engine's number
        self.steps = 0

    def say(self, text: str) -> None:
        """Leave a note in the run, once a process."""
        if text not in self.said:
            self.said.add(text)
            self.recorder.event({"event": "note", "text": text})

    def forwarded(self, ddp: Any, output: Any) -> None:
        """The model's forward is over: watch for the backward pass if that will average."""
        if not (self.torch.is_grad_enabled() and ddp.require_backward_grad_sync):
            return
        if self.pid != self.recorder.pid:
            self._forget()  # a forked child counts anew
        if self.queue is None:
            keep_from_compiler(self.torch, self.modules)
            self.queue = self.torch.autograd.Variable._execution_engine.queue_callback
        self.recorder.look_around()
        why = _why_not(ddp)
        if why:
            self.say(f"gradient synchronisation is not timed: {why}")
            return
        model = self._model(ddp)
        model.expecting = True
        for node in ask(_nodes, output, self.torch.Tensor, default=()):
            node.register_prehook(model.hook)

    def _model(self, ddp: Any) -> Model:
        known = self.models.get(id(ddp))
        if known is None or known.reference() is not ddp:
            # No function of ours: in a callback the exception of a signal handler would be lost.
            forget: Callable[[object], object] = partial(self.models.pop, id(ddp))
            known = self.models[id(ddp)] = Model(weakref.ref(ddp, forget), self)
            found = ask(ddp_model.fingerprint, ddp)
            if found is not None:
                self.recorder.event({"event": "model", **found})
        return known

    def reached(self, model: Model, _: object) -> None:
        """A backward pass has come to an output of the model."""
        if not model.expecting or self.pid != self.recorder.pid:
            return
        task, queue = self.task(), self.queue
        found = self.passes.get(task)
        if queue is None:
            return
        if found is not None:  # of a second output, or of another model in the same pass
            if model not in found.models:
                found.models.append(model)
            return
        while len(self.passes) >= _MOST_OPEN:
            del self.passes[next(iter(self.passes))]
        start = clock()
        self.passes[task] = found = Pass(start)
        found.models.append(model)
        # These two run no line of Python, where a signal handler of the program could raise: that
        # would keep DDP from averaging, and leave the other ranks to wait for it.
        queue(partial(found.times.extend, islice(iter(clock, -1), 1)))
        queue(partial(queue, partial(edge, self.recorder, self.ended, task, found)))

    def ended(self, task: int, found: Pass) -> None:
        """DDP has averaged the gradients."""
        end = clock()
        self.passes.pop(task, None)
        for model in found.models:
            model.expecting = False
        step, self.steps = self.steps, self.steps + 1
        if found.nested:
            text = "gradient synchronisation is not timed: re-entrant checkpoints hide its order"
            self.say(text)
        elif len(found.times) == 2:
            start, ready = found.times
            self.recorder.add_sync(step, start, ready, end, len(found.models))

    def nest(self) -> None:
        """A checkpoint runs a backward pass inside the one in hand."""
        found = self.passes.get(self.task())
        if found is not None:
            found.nested = True


def _why_not(ddp: Any) -> str:
    """Why callbacks tell nothing of this model; "" where they do."""
    kind = ask(str, getattr(ddp, "device_type", ""), default="")
    if kind != "cpu":
        return f"the parameters are on {kind[:40]}, whose work goes on beside Python's"
    if getattr(ddp, "_use_python_reducer", False):
        return "DDP averages in a compiled backward pass"
    if getattr(ddp, "_delay_all_reduce_all_params", False):
        return "DDP averages at the time that the program chose"
    return ""


def _nodes(output: Any, kind: type) -> set[Any]:
    """What made the tensors of a model's output, as far as backward passes through it."""
    found, left = set(), [output]
    while left:
        one = left.pop()
        if isinstance(one, kind):
            node: Any = getattr(one, "grad_fn", None)
            if node is not None:
                found.add(node)
        elif isinstance(one, (list, tuple)):
            left += one
        elif isinstance(one, dict):
            left += one.values()
        elif hasattr(type(one), "__dataclass_fields__"):
            left += vars(one).values()
    return found


def post_forward(original: Callable[..., Any], gradients: Gradients) -> Callable[..., Any]:
    """Hook for `DistributedDataParallel._post_forward`."""
    recorder, torch = gradients.recorder, gradients.torch

    def _post_forward(self: Any, output: Any) -> Any:
        try:
            result = original(self, output)
        except BaseException as error:
            hide_our_frames(recorder, error)
            raise
        if not _compiling(torch):
            edge(recorder, gradients.forwarded, self, result)
        return result

    return hook(_post_forward)


def _compiling(torch: Any) -> bool:
    """Whether torch's compiler follows this call, which is to find nothing of ours in it."""
    if getattr(torch.compiler, "is_compiling", torch._utils.is_compiling)():
        return True
    # Or looks at each function that is called, because it could not follow all of the model.
    callback = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", None)
    return callback is not None and callback() not in (None, False)


def keep_from_compiler(torch: Any, modules: tuple[ModuleType, ...]) -> None:
    """Have a torch that does not tell whether it compiles leave our functions as they are:
    those of this module, of the guard and of `modules`.
    """
    skip = getattr(torch._C._dynamo.eval_frame, "skip_code", None)  # torch before 2.6
    if skip is None:
        return
    found: list[Any] = [
        value
        for module in (sys.modules[__name__], guard, *modules)
        for value in vars(module).values()
        if getattr(value, "__module__", "") == module.__name__
    ]
    for thing in found:
        members = vars(thing).values() if isinstance(thing, type) else (thing,)
        for member in members:
            function = getattr(member, "fget", member)
            while function is not None:
                if hasattr(function, "__code__"):
                    skip(function.__code__)
                function = getattr(function, "__wrapped__", None)


def checkpoint_backward(original: Callable[..., Any], gradients: Gradients) -> Callable[..., Any]:
    """Hook for `torch.utils.checkpoint.CheckpointFunction.backward`."""
    recorder = gradients.recorder

    def backward(ctx: Any, *args: Any) -> Any:
        edge(recorder, gradients.nest)
        try:
            return original(ctx, *args)
        except BaseException as error:
            hide_our_frames(recorder, error)
            raise

    return hook(backward)


def unmeasured(original: Callable[..., Any], gradients: Gradients, what: str) -> Callable[..., Any]:
    """Hook for the `__init__` of a class that averages gradients in a way that is not seen."""
    recorder = gradients.recorder

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        edge(recorder, gradients.say, f"gradient synchronisation of {what} is not timed")

    return hook(__init__)
