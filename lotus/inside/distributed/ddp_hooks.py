"""Base class for features that change how a data-parallel job trains.

They hook DataLoader, and models when DistributedDataParallel wraps them.
"""

import sys
import weakref
from abc import ABC, abstractmethod

from ..common import patching
from ..common.guard import hook, of_the_program, strip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any, Protocol

    class Applier(Protocol):
        """Applies settings to loaders, reports to the user and to lotus, and removes hooks."""

        undo: list[Callable[[], object]]
        waiting: dict[str, list[Callable[[Any], object]]]

        def note(self, text: str) -> None: ...
        def tell(self, fact: dict[str, object]) -> bool: ...


DDP = "torch.nn.parallel.distributed"


class Acting(ABC):
    """Hooks that an applier can remove, and the wrapped models that are alive."""

    feature: str  # of patching.ORDER

    def __init__(self, applier: "Applier") -> None:
        self.applier = applier
        self._models: list[Any] = []  # weak references

    def install(self, module: "Any") -> None:
        """Hook DataLoader in `module`, and DistributedDataParallel if it is already imported."""
        self.hook_loaders(module)
        distributed: Any = sys.modules.get(DDP)
        if hasattr(distributed, "DistributedDataParallel"):
            self.hook_models(distributed)

    @abstractmethod
    def hook_loaders(self, module: "Any") -> None:
        """Hook DataLoader in `module`, and its iterators."""

    def hook_models(self, module: "ModuleType | Any") -> None:
        """Hook DistributedDataParallel in `module`."""

        def around(original: "patching.Function") -> "patching.Function":
            def __init__(model: "Any", *args: "Any", **kwargs: "Any") -> None:
                try:
                    original(model, *args, **kwargs)
                    self.wrapped(model)
                except BaseException as error:
                    patching.hide(error)
                    raise

            return hook(__init__)

        self.listen(module.DistributedDataParallel, "__init__", around)

    def listen(self, owner: "Any", name: str, around: "patching.Around") -> None:
        """Listen on a method of a class until the applier removes its hooks."""
        self.applier.undo.append(patching.listen(owner, name, self.feature, around))

    def before_uncaught(self, call: "Callable[[Any, Any], object]") -> None:
        """Call `call(kind, error)` before an uncaught exception is shown.

        Exceptions that it raises are dropped, so the program ends as it would without lotus. Only
        an exception of the program's own signal handler is raised, after the first one was shown.
        """
        before, listens = sys.excepthook, True

        def excepthook(kind: "Any", error: "Any", traceback: "Any") -> None:
            of_handler: BaseException | None = None
            if listens:
                try:
                    call(kind, error)
                except BaseException as fault:
                    of_handler = fault if of_the_program(fault) else None
            before(kind, error, traceback)
            if of_handler is not None:
                raise of_handler.with_traceback(strip(of_handler.__traceback__))

        sys.excepthook = excepthook

        def undo() -> None:
            nonlocal listens
            listens = False
            if sys.excepthook is excepthook:
                sys.excepthook = before

        self.applier.undo.append(undo)

    def wrapped(self, model: "Any") -> None:
        """Note that the program wrapped a model in DistributedDataParallel."""
        living = [reference for reference in self._models if reference() is not None]
        self._models = [*living, weakref.ref(model)]

    def models(self) -> "list[Any]":
        """Return the wrapped models that are alive, in the order of their creation."""
        models = (reference() for reference in self._models)
        return [model for model in models if model is not None]
