"""Calls functions after given modules are imported; imports no module itself."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Protocol

    class Waiting(Protocol):
        """`waiting`: by module name, the functions that wait for it. `run` calls one."""

        waiting: dict[str, list[Callable[[Any], object]]]

        def run(self, function: Callable[[Any], object], module: ModuleType) -> None: ...


def watch(waiting: "Waiting") -> "Callable[[], None]":
    """Watch imports from now on; return the function that ends it."""
    finder = Watcher(waiting)
    sys.meta_path.insert(0, finder)

    def unwatch() -> None:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)

    return unwatch


class Watcher:
    """A meta path finder that calls functions after a module was imported; finds nothing itself."""

    def __init__(self, waiting: "Waiting") -> None:
        self.waiting = waiting
        self.busy: set[str] = set()

    def find_spec(
        self,
        name: str,
        path: "Sequence[str] | None" = None,
        target: "ModuleType | None" = None,
    ) -> "ModuleSpec | None":
        waiting = self.waiting
        if name not in waiting.waiting or name in self.busy:
            return None
        self.busy.add(name)
        try:
            others = [finder for finder in sys.meta_path if finder is not self]
            specs = (
                finder.find_spec(name, path, target)
                for finder in others
                if hasattr(finder, "find_spec")
            )
            spec = next((spec for spec in specs if spec is not None), None)
        finally:
            self.busy.discard(name)
        loader: Any = getattr(spec, "loader", None)
        # The loader of built-in modules is a class, which all of them share.
        if loader is None or isinstance(loader, type) or not hasattr(loader, "exec_module"):
            return spec
        original = loader.exec_module

        def exec_module(module: "ModuleType") -> None:
            vars(loader).pop("exec_module", None)  # restore the loader
            original(module)
            for function in waiting.waiting.pop(name, ()):
                waiting.run(function, module)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            return spec  # a loader without a __dict__: of a built-in module
        return spec
