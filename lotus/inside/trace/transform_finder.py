"""Finds the transforms of a data set and times each call.

A transform is replaced in its container or attribute by a stand-in that times it. A hook on its
class would record the model too. A stand-in behaves like the original (isinstance, attributes,
repr, pickle, copy), so the program does not notice it.
"""

from __future__ import annotations

import functools
import sys
import types
import weakref

from ..common import patching
from ..common.guard import ask, hook, of_the_program, quiet
from ..common.objects import attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .recorder import Recorder

    StandIns = dict[tuple[int, str], weakref.ref[Any]]  # (id(owner), attribute) -> owner
# Attributes of a data set that hold one callable.
_SINGLE = ("transform", "target_transform", "transforms", "loader")
_MOST_OBJECTS = 2000  # looked at in one data set
_MOST_ITEMS = 64  # length of a list that may contain transforms or data sets
_DEEPEST = 8
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


class StandIn:
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
            del type(self).__call__
        except Exception:
            pass

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        # A pickle or copy of a stand-in is one of the original. `max` of a tuple with one item
        # returns that item, and exists without lotus.
        return object.__getattribute__(self, "_lotus_reduce") or (max, ((original_of(self),),))


def is_stand_in(thing: object) -> bool:
    return issubclass(type(thing), StandIn)


def original_of(thing: Any) -> Any:
    return object.__getattribute__(thing, "_lotus_original") if is_stand_in(thing) else thing


def _forward(name: str) -> Callable[..., Any]:
    def method(self: object, /, *args: object, **kwargs: object) -> object:
        original = original_of(self)
        return getattr(type(original), name)(
            original, *[original_of(arg) for arg in args], **kwargs
        )

    method.__name__ = name
    return method


def stand_in(
    original: Any, operation: int, recorder: Recorder, reduce: tuple[Any, ...] | None = None
) -> Any:
    """Return an object that times calls of `original` and otherwise behaves like it."""
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
    members["__call__"] = recorder.timers.operation(original, operation)
    made: Any = object.__new__(type(kind.__name__, (StandIn,), members))
    object.__setattr__(made, "_lotus_original", original)
    object.__setattr__(made, "_lotus_operation", operation)
    object.__setattr__(made, "_lotus_reduce", reduce)
    return made


def label(thing: Any) -> str:
    """Return a short name for a callable: its class, or its name for a function."""
    function = getattr(thing, "func", None) if type(thing).__name__ == "partial" else thing
    function = original_of(function)
    if type(function) in (types.FunctionType, types.BuiltinFunctionType, types.MethodType):
        name = function.__name__
    else:
        name = type(function).__name__
    return "lambda" if name == "<lambda>" else str(name)[:_LONGEST]


class Finder:
    """Walks a data set and replaces every operation by a stand-in."""

    def __init__(self, recorder: Recorder, stand_ins: StandIns) -> None:
        self.recorder = recorder
        self.stand_ins = stand_ins  # gets all attributes that contain stand-ins
        self.seen: set[int] = set()
        self.made: dict[int, Any] = {}  # id(original) -> stand-in
        self.keep: list[object] = []  # keeps visited objects alive, so that their ids stay unique
        module = sys.modules.get("torch.nn")
        self.module: Any = module.Module if module else ()
        self.sequence: Any = (module.Sequential, module.ModuleList) if module else ()
        data = sys.modules.get("torch.utils.data")
        self.dataset: Any = data.Dataset if data else ()

    def data_set(self, owner: object, depth: int = 0) -> None:
        """Instrument a data set and the data sets inside it."""
        if not self._enter(owner, depth):
            return
        for name, value in list(attributes(owner).items()):
            try:
                self._attribute(owner, name, value, depth)
            except Exception as error:  # objects of the program may behave in any way
                if of_the_program(error):
                    raise
                where = f"{type(owner).__name__}.{name}"[:_LONGEST]
                text = f"operations in {where} not found: {type(error).__name__}"
                self.recorder.event({"event": "note", "text": text})

    def _enter(self, thing: object, depth: int) -> bool:
        if depth > _DEEPEST or id(thing) in self.seen or len(self.seen) > _MOST_OBJECTS:
            return False
        self.seen.add(id(thing))
        self.keep.append(thing)
        return True

    def _attribute(self, owner: object, name: str, value: Any, depth: int) -> None:
        plain = original_of(value)
        if self._children(plain) is not None:
            self.container(
                plain, "" if name in ("transform", "transforms") else name + ":", 0, depth
            )
        elif name in _SINGLE and callable(value):
            if any(callable(attributes(plain).get(inner)) for inner in _SINGLE[:2]):
                self.data_set(plain, depth + 1)  # torchvision's StandardTransform
                return
            text = "Loader" if name == "loader" else label(plain)
            prefix = name + ":" if name == "target_transform" else ""
            made = self._stand_in(value, prefix + text, 0, 0, name == "loader")
            if made is not value:
                self._set_attribute(owner, name, made)
            self._inside(plain, made, prefix + text, depth)
        elif name == "_format_kwargs" and isinstance(value, dict):
            transform = value.get("transform")  # Hugging Face: set_transform
            if callable(transform):
                made = self._stand_in(transform, label(transform), 0, 0)
                if made is not transform:
                    value["transform"] = made
                    self._give_back_later(owner, name)
        elif self._is_data_set(plain, name):
            self.data_set(plain, depth + 1)
        elif type(value) in (list, tuple) and 0 < len(value) <= _MOST_ITEMS:
            for item in value:
                if self._is_data_set(item, name):
                    self.data_set(item, depth + 1)

    def _is_data_set(self, value: object, name: str) -> bool:
        if issubclass(type(value), self.module):
            return False
        return issubclass(type(value), self.dataset) or (
            name in ("dataset", "datasets", "_datapipe", "datapipe", "source_datapipe")
            and bool(attributes(value))
        )

    def _children(self, thing: Any) -> list[tuple[Any, Any]] | None:
        """The transforms of a container as (key, callable) pairs, or None if it is none."""
        kind = type(thing)
        if issubclass(kind, self.sequence):
            return list(thing._modules.items())
        if issubclass(kind, type) or not callable(thing):
            return None
        inner: Any = attributes(thing).get("transforms")
        if inner is None and issubclass(kind, self.module):
            inner = thing._modules.get("transforms")
        if issubclass(type(inner), self.sequence):
            return list(inner._modules.items())
        few = type(inner) in (list, tuple) and 0 < len(inner) <= 4 * _MOST_ITEMS
        if few and all(callable(item) for item in inner):
            return list(enumerate(inner))
        return None

    def container(self, container: object, path: str, parent: int, depth: int) -> None:
        """Instrument the transforms of one container; `path` precedes their names."""
        if not self._enter(container, depth):
            return
        children = self._children(container) or []
        labels = [label(original_of(child)) for _, child in children]
        for index, (key, child) in enumerate(children):
            text = labels[index]
            if labels.count(text) > 1:
                text += f"[{labels[:index].count(text)}]"
            made = self._place(container, key, child, path + text, parent, index)
            self._inside(original_of(child), made, path + text, depth)

    def _inside(self, plain: object, made: object, path: str, depth: int) -> None:
        """Instrument containers inside an operation, such as RandomApply or a user's transform."""
        operation = object.__getattribute__(made, "_lotus_operation") if is_stand_in(made) else 0
        if not operation:
            forward = attributes(plain).get("forward")
            if is_stand_in(forward):
                operation = object.__getattribute__(forward, "_lotus_operation")
        if self._children(plain) is not None:
            self.container(plain, path + "/", operation, depth + 1)
            return
        if issubclass(type(plain), (types.FunctionType, types.BuiltinFunctionType, type)):
            return
        for value in list(attributes(plain).values()):
            value = original_of(value)
            if self._children(value) is not None:
                self.container(value, path + "/", operation, depth + 1)

    def _place(
        self, container: Any, key: Any, child: Any, name: str, parent: int, index: int
    ) -> Any:
        if issubclass(type(container), self.sequence):
            return self._override_forward(child, name, parent, index)
        inner = attributes(container).get("transforms")
        if inner is None:
            inner = container._modules["transforms"]
        if issubclass(type(inner), self.sequence):
            return self._override_forward(child, name, parent, index)
        made = self._stand_in(child, name, parent, index)
        if made is not child:
            if type(inner) is list:
                inner[key] = made
                self._give_back_later(container, "transforms")
            else:
                changed = (*inner[:key], made, *inner[key + 1 :])
                self._set_attribute(container, "transforms", changed)
        return made

    def _stand_in(self, child: Any, name: str, parent: int, index: int, loads: bool = False) -> Any:
        if is_stand_in(child):
            return child
        known = self.made.get(id(child))
        if known is None:
            kind = "loader" if loads else "transform"
            number = self.recorder.definitions.define(name, parent, index, kind)
            known = stand_in(child, number, self.recorder)
            if loads:
                self.recorder.definitions.name_function(number, label(child))
            self.made[id(child)] = known
            self.keep.append(child)
        return known

    def _override_forward(self, child: Any, name: str, parent: int, index: int) -> Any:
        """Time a module inside a module, which must stay in place for code that walks modules."""
        if issubclass(type(child), self.module) and "forward" not in attributes(child):
            forward = getattr(child, "forward", None)
            if forward is not None and type(child).__module__ != "torch.jit._script":
                operation = self.recorder.definitions.define(name, parent, index)
                made = stand_in(forward, operation, self.recorder, (getattr, (child, "forward")))
                child.__dict__["forward"] = made
                self._give_back_later(child, "forward")
        return child

    def _set_attribute(self, owner: object, name: str, value: object) -> None:
        vars(owner)[name] = value
        self._give_back_later(owner, name)

    def _give_back_later(self, owner: object, name: str) -> None:
        # Weak, so that it does not keep objects of the program alive.
        with quiet(TypeError):  # not all objects support weak references
            key = (id(owner), name)
            forget: Callable[[object], object] = functools.partial(self.stand_ins.pop, key)
            self.stand_ins[key] = weakref.ref(owner, forget)


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


def wrap_named(owner: Any, name: str, operation: int, recorder: Recorder) -> Callable[[], None]:
    """Time the function or method `owner.name`; return a function that removes the timer.

    Raises AttributeError if it does not exist, TypeError if it is a class.
    """

    def around(function: Any) -> Callable[..., Any]:
        if isinstance(function, type):
            raise TypeError(f"{name} is a class: name a method, such as {name}.__call__")
        if not callable(function):
            raise TypeError(f"{name} is not callable")
        timed = recorder.timers.operation(function, operation)

        def call(*args: Any, **kwargs: Any) -> Any:
            return timed(None, *args, **kwargs)

        return hook(call)

    return patching.listen(owner, name, f"operations:{operation}", around, inherited=True)
