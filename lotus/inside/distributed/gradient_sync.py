"""Times when the gradients of a DistributedDataParallel model are computed and averaged.

After a backward pass has computed all gradients, torch's engine runs callbacks in the order in
which they were queued. DDP queues a callback, which waits for its all-reduces, when its last bucket
is full. Ours are queued earlier, when the backward pass reaches the model's output. So our first
callback runs when this rank has all its gradients; it queues another one that runs after DDP's.
Nothing of the model, its gradients, its hooks or its communication is replaced.
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
        """Receives the times: the recorder of a trace, or the rebalancing of shares."""

        pid: int

        @property
        def on(self) -> bool: ...
        def fault(self, error: Exception) -> None: ...
        def event(self, fact: dict[str, Any]) -> None: ...
        def look_around(self) -> None: ...
        def add_sync(self, step: int, start: int, ready: int, end: int, models: int) -> None: ...


_MOST_OPEN = 8  # backward passes that began but did not end, for instance because one raised


class Model:
    """A DDP model that is alive.

    `expecting` mirrors its reducer's state: a forward pass has announced a backward pass that
    averages gradients, and no such pass has ended since.
    """

    __slots__ = ("expecting", "hook", "reference")

    def __init__(self, reference: weakref.ref[Any], gradients: Gradients) -> None:
        self.reference = reference
        self.expecting = False
        self.hook = partial(edge, gradients.recorder, gradients.reached, self)


class BackwardPass:
    """A backward pass: its times so far (start, ready), and the models that it averages."""

    __slots__ = ("models", "nested", "times")

    def __init__(self, start: int) -> None:
        self.times: deque[int] = deque((start,))
        self.models: list[Model] = []
        self.nested = False  # whether part of it ran as a separate backward pass


class Gradients:
    """The backward passes of this process."""

    def __init__(
        self, recorder: Recorder, torch: Any, modules: tuple[ModuleType, ...] = ()
    ) -> None:
        """`torch` may still be partly imported. `modules` are those whose code `recorder` runs.

        Raises AttributeError for an unknown version of torch.
        """
        self.modules = modules
        self.recorder = recorder
        self.torch = torch
        self.task: Callable[[], int] = torch._C._current_graph_task_id
        self.queue: Callable[[Any], None] | None = None
        self.noted: set[str] = set()
        self._forget()

    def _forget(self) -> None:
        self.pid = self.recorder.pid
        self.models: dict[int, Model] = {}  # by id
        self.passes: dict[int, BackwardPass] = {}  # by the engine's number
        self.steps = 0

    def say(self, text: str) -> None:
        """Record a note, once per process."""
        if text not in self.noted:
            self.noted.add(text)
            self.recorder.event({"event": "note", "text": text})

    def forwarded(self, ddp: Any, output: Any) -> None:
        """Handle the end of a forward pass: watch for a backward pass that averages gradients."""
        if not (self.torch.is_grad_enabled() and ddp.require_backward_grad_sync):
            return
        if self.pid != self.recorder.pid:
            self._forget()  # a forked child starts counting at 0
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
        entry = self.models.get(id(ddp))
        if entry is None or entry.reference() is not ddp:
            # Not a Python function: an exception of a signal handler in a callback would be lost.
            forget: Callable[[object], object] = partial(self.models.pop, id(ddp))
            entry = self.models[id(ddp)] = Model(weakref.ref(ddp, forget), self)
            fingerprint = ask(ddp_model.fingerprint, ddp)
            if fingerprint is not None:
                self.recorder.event({"event": "model", **fingerprint})
        return entry

    def reached(self, model: Model, _: object) -> None:
        """Handle a backward pass that reaches an output of the model."""
        if not model.expecting or self.pid != self.recorder.pid:
            return
        task, queue = self.task(), self.queue
        backward = self.passes.get(task)
        if queue is None:
            return
        if backward is not None:  # a second output, or another model in the same pass
            if model not in backward.models:
                backward.models.append(model)
            return
        while len(self.passes) >= _MOST_OPEN:
            del self.passes[next(iter(self.passes))]
        start = clock()
        self.passes[task] = backward = BackwardPass(start)
        backward.models.append(model)
        # These two run no Python code, in which a signal handler of the program could raise. That
        # would keep DDP from averaging, and the other ranks would wait for this one.
        queue(partial(backward.times.extend, islice(iter(clock, -1), 1)))
        queue(partial(queue, partial(edge, self.recorder, self.ended, task, backward)))

    def ended(self, task: int, backward: BackwardPass) -> None:
        """Record the times of a backward pass, after DDP has averaged the gradients."""
        end = clock()
        self.passes.pop(task, None)
        for model in backward.models:
            model.expecting = False
        step, self.steps = self.steps, self.steps + 1
        if backward.nested:
            text = "gradient synchronisation is not timed: re-entrant checkpoints hide its order"
            self.say(text)
        elif len(backward.times) == 2:
            start, ready = backward.times
            self.recorder.add_sync(step, start, ready, end, len(backward.models))

    def nest(self) -> None:
        """Note that a checkpoint runs a backward pass inside the current one."""
        backward = self.passes.get(self.task())
        if backward is not None:
            backward.nested = True


def _why_not(ddp: Any) -> str:
    """Return why callbacks cannot time this model; "" if they can."""
    kind = ask(str, getattr(ddp, "device_type", ""), default="")
    if kind != "cpu":
        return f"the parameters are on {kind[:40]}, whose work goes on beside Python's"
    if getattr(ddp, "_use_python_reducer", False):
        return "DDP averages in a compiled backward pass"
    if getattr(ddp, "_delay_all_reduce_all_params", False):
        return "DDP averages at the time that the program chose"
    return ""


def _nodes(output: Any, kind: type) -> set[Any]:
    """Return the autograd nodes of the tensors in a model's output."""
    nodes, pending = set(), [output]
    while pending:
        value = pending.pop()
        if isinstance(value, kind):
            node: Any = getattr(value, "grad_fn", None)
            if node is not None:
                nodes.add(node)
        elif isinstance(value, (list, tuple)):
            pending += value
        elif isinstance(value, dict):
            pending += value.values()
        elif hasattr(type(value), "__dataclass_fields__"):
            pending += vars(value).values()
    return nodes


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
    """Return whether torch's compiler traces this call, so that our code must stay out of it."""
    if getattr(torch.compiler, "is_compiling", torch._utils.is_compiling)():
        return True
    # Or it examines every function call, because it could not trace the whole model.
    callback = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", None)
    return callback is not None and callback() not in (None, False)


def keep_from_compiler(torch: Any, modules: tuple[ModuleType, ...]) -> None:
    """Keep the compiler of a torch that does not tell when it compiles away from our functions.

    These are the functions of this module, of the guard and of `modules`.
    """
    skip = getattr(torch._C._dynamo.eval_frame, "skip_code", None)  # torch before 2.6
    if skip is None:
        return
    definitions: list[Any] = [
        value
        for module in (sys.modules[__name__], guard, *modules)
        for value in vars(module).values()
        if getattr(value, "__module__", "") == module.__name__
    ]
    for definition in definitions:
        members = vars(definition).values() if isinstance(definition, type) else (definition,)
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
    """Hook for the `__init__` of a class that averages gradients in a way that cannot be timed."""
    recorder = gradients.recorder

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        edge(recorder, gradients.say, f"gradient synchronisation of {what} is not timed")

    return hook(__init__)
