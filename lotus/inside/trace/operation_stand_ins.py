"""Stand-ins: objects that time the calls of a function or transform in its place.

A stand-in behaves like the original (isinstance, attributes, repr, pickle, copy), so the program
does not notice it.
"""

from __future__ import annotations

import types
import weakref

from ..common.guard import ask, hook
from ..common.object_attributes import attributes, original_of
from .native import native_hooks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .recorder import Recorder

    StandIns = dict[tuple[int, str], weakref.ref[Any]]  # (id(owner), attribute) -> owner
_LONGEST = 200  # characters of a name
# Python looks these up on the type, so a stand-in needs its own.
_NOT_FORWARDED = frozenset(
    "__class__ __new__ __init__ __getattribute__ __getattr__ __setattr__ __delattr__ __dict__ "
    "__slots__ __reduce__ __reduce_ex__ __getstate__ __setstate__ __getnewargs__ "
    "__getnewargs_ex__ __init_subclass__ __subclasshook__ __del__ __call__ __doc__ __module__ "
    "__weakref__ __dir__ __sizeof__ __get__ __set__ __delete__ __set_name__ __abstractmethods__ "
    "__class_getitem__ __copy__ __deepcopy__ __firstlineno__ __static_attributes__".split()
)
# Not called: `dataclasses.asdict` looks these up on the type.
_OF_DATACLASSES = ("__dataclass_fields__", "__dataclass_params__")

_Base: Any = object if native_hooks.MODULE is None else native_hooks.MODULE.Timed


class StandIn(_Base):  # type: ignore[misc]
    """Base class of stand-ins; `stand_in` makes a subclass for each of them.

    Its annotations only use names that the program can resolve.
    """

    __slots__ = ("__weakref__", "_lotus_operation", "_lotus_original", "_lotus_reduce")

    def __getattr__(self, name: str) -> object:
        return getattr(object.__getattribute__(self, "_lotus_original"), name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(object.__getattribute__(self, "_lotus_original"), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(object.__getattribute__(self, "_lotus_original"), name)

    def __dir__(self) -> list[str]:
        return dir(object.__getattribute__(self, "_lotus_original"))

    def __del__(self) -> None:
        # The class is a reference cycle that would keep the original alive until a collection.
        try:  # noqa: SIM105 - at the end of the program the names of this module may be gone
            type(self).__call__ = _call  # a finalizer of the program may still call it
        except Exception:
            pass

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        # A pickle or copy of a stand-in is one of the original. `max` of a tuple with one item
        # returns that item, and exists without lotus.
        return object.__getattribute__(self, "_lotus_reduce") or (max, ((original_of(self),),))


def is_stand_in(thing: object) -> bool:
    return issubclass(type(thing), StandIn)


@hook
def _call(self: object, /, *args: Any, **kwargs: Any) -> Any:
    return object.__getattribute__(self, "_lotus_original")(*args, **kwargs)


def _forward(name: str) -> Callable[..., Any]:
    def method(self: object, /, *args: object, **kwargs: object) -> object:
        original = original_of(self)
        return getattr(type(original), name)(
            original, *[original_of(arg) for arg in args], **kwargs
        )

    method.__name__ = name
    return method


def stand_in(
    original: Any,
    operation: int,
    recorder: Recorder,
    reduce: tuple[Any, ...] | None = None,
    call: Callable[..., Any] | None = None,
) -> Any:
    """Return an object that times calls of `original` and otherwise behaves like it.

    `call` (self, *args, **kwargs) replaces its `__call__` if more than the time of a call counts.
    """
    kind = type(original)
    members: dict[str, Any] = {
        name: _forward(name)
        for name in dir(kind)
        if name.startswith("__")
        and name.endswith("__")
        and name not in _NOT_FORWARDED
        and callable(getattr(kind, name, None))
    }
    if getattr(kind, "__hash__", None) is None:
        members["__hash__"] = None
    for base in reversed(kind.__mro__):
        members.update({name: vars(base)[name] for name in _OF_DATACLASSES if name in vars(base)})
    members["__slots__"] = ()
    members["__class__"] = property(lambda self: original_of(self).__class__)
    members["__doc__"] = ask(getattr, original, "__doc__", None)
    members["__call__"] = call or recorder.timers.operation(original, operation)
    instance: Any = object.__new__(type(kind.__name__, (StandIn,), members))
    object.__setattr__(instance, "_lotus_original", original)
    object.__setattr__(instance, "_lotus_operation", operation)
    object.__setattr__(instance, "_lotus_reduce", reduce)
    if call is None:
        recorder.timers.time_calls(instance, original, operation)
    return instance


def label(thing: Any) -> str:
    """Return a short name for a callable: its class, or its name for a function."""
    function = getattr(thing, "func", None) if type(thing).__name__ == "partial" else thing
    function = original_of(function)
    if type(function) in (types.FunctionType, types.BuiltinFunctionType, types.MethodType):
        name = function.__name__
    else:
        name = type(function).__name__
    return "lambda" if name == "<lambda>" else str(name)[:_LONGEST]


def numbered(labels: list[str]) -> list[str]:
    """Return the labels; repeated ones get "[0]", "[1]" and so on."""
    return [
        f"{text}[{labels[:index].count(text)}]" if labels.count(text) > 1 else text
        for index, text in enumerate(labels)
    ]


def give_back(stand_ins: StandIns) -> None:
    """Replace all stand-ins in these attributes by their originals."""
    for (_, name), reference in list(stand_ins.items()):
        owner = reference()
        if owner is not None:
            _give_back(attributes(owner), name)
    stand_ins.clear()


def _give_back(held: dict[str, Any], name: str) -> None:
    value = held.get(name)
    if is_stand_in(value) and name == "forward":
        del held[name]
    elif is_stand_in(value):
        held[name] = original_of(value)
    elif type(value) is tuple:
        held[name] = tuple(original_of(item) for item in value)
    elif type(value) is list:
        value[:] = [original_of(item) for item in value]
    elif isinstance(value, dict):
        value.update({key: original_of(item) for key, item in value.items()})
