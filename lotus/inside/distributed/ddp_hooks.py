"""What changes how a data-parallel job trains hooks: DataLoader, and models as they are wrapped."""

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
        """What puts settings on loaders: it tells the user and lotus, and takes hooks back."""

        undo: list[Callable[[], object]]
        waiting: dict[str, list[Callable[[Any], object]]]

        def note(self, text: str) -> None: ...
        def tell(self, fact: dict[str, object]) -> bool: ...


DDP = "torch.nn.parallel.distributed"


class Acting(ABC):
    """Hooks of an applier, which takes them back, and the models that live."""

    feature: str  # of patching.ORDER

    def __init__(self, applier: "Applier") -> None:
        self.applier = applier
        self._models: list[Any] = []  # weak references

    def install(self, module: "Any") -> None:
        """Hook DataLoader, of its module, and DistributedDataParallel where it is there by now."""
        self.hook_loaders(module)
        distributed: Any = sys.modules.get(DDP)
        if hasattr(distributed, "DistributedDataParallel"):
            self.hook_models(distributed)

    @abstractmethod
    def hook_loaders(self, module: "Any") -> None:
        """Hook DataLoader, of its module, and its iterators."""

    def hook_models(self, module: "ModuleType | Any") -> None:
        """Hook DistributedDataParallel, of its module."""

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
        """Listen on a method of a class, until the applier takes it back."""
        self.applier.undo.append(patching.listen(owner, name, self.feature, around))

    def before_its_end(self, call: "Callable[[Any, Any], object]") -> None:
        """Have `call(kind, error)` go before where an exception that ends the program is shown.

        What it raises is dropped: the program ends as it would by itself. Only what a signal
        handler of the program raises meanwhile goes on, after the exception was shown.
        """
        before, listens = sys.excepthook, True

        def excepthook(kind: "Any", error: "Any", traceback: "Any") -> None:
            handlers: BaseException | None = None
            if listens:
                try:
                    call(kind, error)
                except BaseException as fault:
                    handlers = fault if of_the_program(fault) else None
            before(kind, error, traceback)
            if handlers is not None:
                raise handlers.with_traceback(strip(handlers.__traceback__))

        sys.excepthook = excepthook

        def undo() -> None:
            nonlocal listens
            listens = False
            if sys.excepthook is excepthook:
                sys.excepthook = before

        self.applier.undo.append(undo)

    def wrapped(self, model: "Any") -> None:
        """The program has put a model in DistributedDataParallel."""
        living = [one for one in self._models if one() is not None]
        self._models = [*living, weakref.ref(model)]

    def models(self) -> "list[Any]":
        """The models in DistributedDataParallel that live, in the order in which they were made."""
        return [model for model in (one() for one in self._models) if model is not None]
