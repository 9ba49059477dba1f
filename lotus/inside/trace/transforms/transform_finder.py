"""Finds the transforms of a data set and times each call.

A transform is replaced in its container or attribute by a stand-in that times it. A hook on its
class would record the model too.
"""

from __future__ import annotations

import functools
import sys
import types
import weakref

from ...common import patching
from ...common.guard import hook, of_the_program, quiet
from ...common.object_attributes import attributes, original_of
from ..called_function import function_of
from ..operation_stand_ins import is_stand_in, label, numbered, stand_in
from . import augment_hooks, captured_objects, stream_stages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from ..operation_stand_ins import StandIns
    from ..recorder import Recorder
# Attributes of a data set that hold one callable.
_SINGLE = ("transform", "target_transform", "transforms", "loader")
_TELLING = ("transform", "augment", "preprocess")  # parts of other such names
_MOST_OBJECTS = 2000  # looked at in one data set
_MOST_ITEMS = 64  # length of a list that may contain transforms or data sets
_MOST_CALLED = 16  # callables of a list or dictionary; more of them are data rather than transforms
_DEEPEST = 8
_GENERATOR = 0x20  # CO_GENERATOR
_LONGEST = 200  # characters of a name


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
        if not self.enter(owner, depth):
            return
        for name, value in list(attributes(owner).items()):
            try:
                if not stream_stages.instrument(self, owner, name, value, depth):
                    self._attribute(owner, name, value, depth)
            except Exception as error:  # objects of the program may behave in any way
                if of_the_program(error):
                    raise
                where = f"{type(owner).__name__}.{name}"[:_LONGEST]
                text = f"operations in {where} not found: {type(error).__name__}"
                self.recorder.event({"event": "note", "text": text})

    def enter(self, thing: object, depth: int) -> bool:
        if depth > _DEEPEST or id(thing) in self.seen or len(self.seen) > _MOST_OBJECTS:
            return False
        self.seen.add(id(thing))
        self.keep.append(thing)
        return True

    def _attribute(self, owner: object, name: str, value: Any, depth: int) -> None:
        plain = original_of(value)
        if self._children(plain) is not None:
            self.container(plain, _path(name), 0, depth)
        elif callable(value) and (name in _SINGLE or self._tells(name, plain)):
            if any(callable(attributes(plain).get(inner)) for inner in _SINGLE[:2]):
                self.data_set(plain, depth + 1)  # torchvision's StandardTransform
                return
            text = "Loader" if name == "loader" else label(plain)
            prefix = "" if name == "loader" else _path(name)
            replacement = self._stand_in(value, prefix + text, 0, 0, name == "loader")
            if replacement is not value:
                self.set_attribute(owner, name, replacement)
            self.inside(plain, replacement, prefix + text, depth)
        elif name == "_format_kwargs" and isinstance(value, dict):
            transform = value.get("transform")  # Hugging Face: set_transform
            if callable(transform):
                replacement = self._stand_in(transform, label(transform), 0, 0)
                if replacement is not transform:
                    value["transform"] = replacement
                    self.give_back_later(owner, name)
                self.inside(original_of(transform), replacement, label(transform), depth)
        elif self._is_data_set(plain, name):
            self.data_set(plain, depth + 1)
        elif type(value) in (list, tuple) and 0 < len(value) <= _MOST_ITEMS:
            for item in value:
                if self._is_data_set(item, name):
                    self.data_set(item, depth + 1)
            if self._are_transforms(value):
                self._collection(owner, name, value, list(enumerate(value)), depth)
        elif (
            type(value) is dict
            and self._are_transforms(value.values())
            # A key of another type may run code of the program when it is looked up.
            and set(map(type, value)) == {str}
        ):
            self._collection(owner, name, value, list(value.items()), depth)

    def _are_transforms(self, values: Collection[Any]) -> bool:
        """Return whether the data set's own code may call these in turn, or choose among them."""
        return 0 < len(values) <= _MOST_CALLED and all(
            callable(value) and self._may_transform(original_of(value)) for value in values
        )

    def _tells(self, name: str, value: object) -> bool:
        return any(part in name.lower() for part in _TELLING) and self._may_transform(value)

    def _may_transform(self, value: object) -> bool:
        """Return False for classes, data sets, models and what makes a generator."""
        if issubclass(type(value), self.module):
            return _of_torchvision(value)
        function = function_of(value)[0]
        if type(function) is types.FunctionType and function.__code__.co_flags & _GENERATOR:
            return False  # the call returns at once
        return not issubclass(type(value), (type, self.dataset))

    def _collection(
        self, owner: object, name: str, values: Any, items: list[tuple[Any, Any]], depth: int
    ) -> None:
        """Instrument the transforms in a list, tuple or dictionary of a data set."""
        path = _path(name)
        plain = [original_of(value) for _, value in items]
        labels = [str(key)[:_LONGEST] for key, _ in items]
        if type(values) is not dict:
            labels = numbered([label(value) for value in plain])
        names = [path + text for text in labels]
        changed: dict[Any, Any] = {}
        for index, (key, value) in enumerate(items):
            if self._children(plain[index]) is not None:
                self.container(plain[index], names[index] + "/", 0, depth + 1)
                continue
            changed[key] = self._stand_in(value, names[index], 0, index)
            self.inside(plain[index], changed[key], names[index], depth)
        if type(values) is tuple:
            after = tuple(changed.get(key, value) for key, value in items)
            self.set_attribute(owner, name, after)
            return
        for key, value in changed.items():
            values[key] = value
        self.give_back_later(owner, name)

    def _is_data_set(self, value: object, name: str) -> bool:
        if issubclass(type(value), self.module):
            return False
        return issubclass(type(value), self.dataset) or (
            name in ("dataset", "datasets", "_datapipe", "datapipe", "source_datapipe")
            and bool(attributes(value))
        )

    def _children(self, thing: Any) -> list[tuple[Any, Any]] | None:
        """Return the transforms of a container as (key, callable), or None if it is not a
        container.
        """
        kind = type(thing)
        if issubclass(kind, self.sequence):
            return list(thing._modules.items())
        if issubclass(kind, type) or not callable(thing):
            return None
        inner: Any = attributes(thing).get("transforms")
        if inner is None and issubclass(kind, self.module):
            modules = attributes(thing).get("_modules")  # a compiled module has no dictionary
            inner = modules.get("transforms") if isinstance(modules, dict) else None
        if issubclass(type(inner), self.sequence):
            return list(inner._modules.items())
        few = type(inner) in (list, tuple) and 0 < len(inner) <= 4 * _MOST_ITEMS
        if few and all(callable(item) for item in inner):
            return list(enumerate(inner))
        return None

    def container(self, container: object, path: str, parent: int, depth: int) -> None:
        """Instrument the transforms of one container; `path` precedes their names."""
        if not self.enter(container, depth):
            return
        children = self._children(container) or []
        labels = numbered([label(original_of(child)) for _, child in children])
        for index, (key, child) in enumerate(children):
            name = path + labels[index]
            replacement = self._place(container, key, child, name, parent, index)
            self.inside(original_of(child), replacement, name, depth)

    def inside(self, plain: object, made: object, path: str, depth: int) -> None:
        """Instrument containers inside an operation, such as RandomApply or a user's transform."""
        operation = object.__getattribute__(made, "_lotus_operation") if is_stand_in(made) else 0
        if not operation:
            forward = attributes(plain).get("forward")
            if is_stand_in(forward):
                operation = object.__getattribute__(forward, "_lotus_operation")
        augment_hooks.place(self.recorder, plain, operation, path)
        if self._children(plain) is not None:
            self.container(plain, path + "/", operation, depth + 1)
            return
        if type(plain) in captured_objects.KINDS:
            self._captured(plain, path + "/", operation, depth)
            return
        if issubclass(type(plain), (types.BuiltinFunctionType, type)):
            return
        for value in list(attributes(plain).values()):
            value = original_of(value)
            if self._children(value) is not None:
                self.container(value, path + "/", operation, depth + 1)

    def _captured(self, function: object, path: str, parent: int, depth: int) -> None:
        """Instrument callables in a function's closure, globals and arguments.

        Plain sequences of modules are skipped, as they may be a model; others are changed in place.
        """
        captured = [original_of(value) for value in captured_objects.of(function)]
        captured = [value for value in captured if not issubclass(type(value), self.sequence)]
        modules = []
        for value in captured:
            if self._children(value) is not None:
                self.container(value, path, parent, depth + 1)
            elif issubclass(type(value), self.module) and _of_torchvision(value):
                modules.append(value)
        names = numbered([label(module) for module in modules])
        for index, (module, name) in enumerate(zip(modules, names, strict=True)):
            replacement = self._override_forward(module, path + name, parent, index)
            self.inside(module, replacement, path + name, depth)

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
        replacement = child if _flattened(child) else self._stand_in(child, name, parent, index)
        if replacement is not child:
            if type(inner) is list:
                inner[key] = replacement
                self.give_back_later(container, "transforms")
            else:
                changed = (*inner[:key], replacement, *inner[key + 1 :])
                self.set_attribute(container, "transforms", changed)
        return replacement

    def _stand_in(self, child: Any, name: str, parent: int, index: int, loads: bool = False) -> Any:
        if is_stand_in(child):
            return child
        existing = self.made.get(id(child))
        if existing is None:
            kind = "loader" if loads else "transform"
            number = self.recorder.definitions.define(name, parent, index, kind)
            if loads:
                self.recorder.definitions.name_function(number, label(child))
            existing = stand_in(child, number, self.recorder)
            self.made[id(child)] = existing
            self.keep.append(child)
        return existing

    def _override_forward(self, child: Any, name: str, parent: int, index: int) -> Any:
        """Time a module inside a module, which must stay in place for code that walks modules."""
        if issubclass(type(child), self.module) and "forward" not in attributes(child):
            forward = getattr(child, "forward", None)
            if forward is not None and type(child).__module__ != "torch.jit._script":
                operation = self.recorder.definitions.define(name, parent, index)
                replacement = stand_in(
                    forward, operation, self.recorder, (getattr, (child, "forward"))
                )
                child.__dict__["forward"] = replacement
                self.give_back_later(child, "forward")
        return child

    def set_attribute(self, owner: object, name: str, value: object) -> None:
        vars(owner)[name] = value
        self.give_back_later(owner, name)

    def give_back_later(self, owner: object, name: str) -> None:
        # Weak, so that it does not keep objects of the program alive.
        with quiet(TypeError):  # not all objects support weak references
            key = (id(owner), name)
            forget: Callable[[object], object] = functools.partial(self.stand_ins.pop, key)
            self.stand_ins[key] = weakref.ref(owner, forget)


def _path(name: str) -> str:
    """Return what precedes the names of the operations in a data set's attribute."""
    return "" if name in ("transform", "transforms") else name + ":"


def _flattened(thing: object) -> bool:
    """Return whether its library tests for its exact type, to insert its transforms instead."""
    kind = type(thing)
    return (kind.__module__, kind.__name__) == ("monai.transforms.compose", "Compose")


def _of_torchvision(module: object) -> bool:
    return str(type(module).__module__).startswith("torchvision.transforms.")


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
