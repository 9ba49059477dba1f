"""Times the operations that RandAugment, AutoAugment and similar transforms apply to a sample.

They choose operations by name, and have no list of objects that stand-ins could replace.
"""

from __future__ import annotations

import sys
import types

from ...common.guard import ask, hook
from ...common.object_attributes import attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..recorder import Recorder


def _of_function(args: tuple[Any, ...]) -> str:
    return str(args[1])  # (image, name, ...)


def _of_method(args: tuple[Any, ...]) -> str:
    return str(args[2])  # (self, image, name, ...)


def _of_object(args: tuple[Any, ...]) -> str:
    return str(attributes(args[0])["name"])


# Module: class or "", its function that applies an operation, the position of its name.
FUNCTIONS: dict[str, tuple[str, str, Callable[[tuple[Any, ...]], str]]] = {
    "torchvision.transforms.autoaugment": ("", "_apply_op", _of_function),
    "torchvision.transforms.v2._auto_augment": (
        "_AutoAugmentBase", "_apply_image_or_video_transform", _of_method,
    ),
    "timm.data.auto_augment": ("AugmentOp", "__call__", _of_object),
}  # fmt: skip


def place(recorder: Recorder, transform: object, operation: int, path: str) -> None:
    """Note the operation and name under which an AutoAugment is found, if it is one."""
    augmenters = getattr(recorder.definitions, "augmenters", {})
    for kind in type(transform).__mro__:
        if kind.__module__ in FUNCTIONS:
            augmenters[kind.__name__] = (operation, path)


def apply(original: Callable[..., Any], module: Any, recorder: Recorder) -> Callable[..., Any]:
    """Hook for one of FUNCTIONS: each call is an operation inside the transform that calls."""
    name_in = FUNCTIONS[module.__name__][2]
    callers = _callers(module)
    gate, span, define = recorder.gate, recorder.timers.span, recorder.definitions.define
    frame, augmenters = sys._getframe, recorder.definitions.augmenters

    def begin(args: tuple[Any, ...], caller: types.CodeType) -> Callable[[], None]:
        kind = callers.get(caller, "AutoAugment")
        parent, path = augmenters.get(kind, (0, kind))
        end: Callable[[], None] = span(define(f"{path}/{ask(name_in, args, default='?')}", parent))
        return end

    def apply(*args: Any, **kwargs: Any) -> Any:
        if gate.shut:
            return original(*args, **kwargs)
        end = begin(args, frame(1).f_code)
        try:
            return original(*args, **kwargs)
        finally:
            end()

    # With its module's globals, which torch.jit.script uses to compile its callers.
    code = hook(apply).__code__
    return types.FunctionType(code, vars(module), apply.__name__, None, apply.__closure__)


def _callers(module: Any) -> dict[types.CodeType, str]:
    """Map the code of each method in a module to the name of its class."""
    return {
        method.__code__: kind.__name__
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__
        for method in vars(kind).values()
        if type(method) is types.FunctionType
    }
