"""What changes how a data-parallel job trains hooks: DataLoader, and models as they are wrapped."""

import sys
import weakref
from abc import ABC, abstractmethod
from functools import partial, wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from .settings import Applier

DDP = "torch.nn.parallel.distributed"


class Acting(ABC):
    """Hooks of an applier, which takes them back, and the models that live."""

    def __init__(self, applier: "Applier") -> None:
        self.applier = applier
        self._models: list[Any] = []  # weak references

    def install(self, module: "Any") -> None:
        """Hook DataLoader, of its module, and DistributedDataParallel where it is there by now."""
        self.hook_loaders(module.DataLoader)
        distributed: Any = sys.modules.get(DDP)
        if hasattr(distributed, "DistributedDataParallel"):
            self.hook_models(distributed)

    @abstractmethod
    def hook_loaders(self, loader: "Any") -> None:
        """Hook the class DataLoader."""

    def hook_models(self, module: "ModuleType | Any") -> None:
        """Hook DistributedDataParallel, of its module."""
        kind = module.DistributedDataParallel
        original = kind.__init__

        @wraps(original)
        def __init__(model: "Any", *args: "Any", **kwargs: "Any") -> None:
            original(model, *args, **kwargs)
            self.wrapped(model)

        from .guard import hook

        self.replace(kind, "__init__", hook(__init__))

    def replace(self, owner: "Any", name: str, value: object) -> None:
        """Put something in place of an attribute, until the applier takes it back."""
        before = vars(owner)[name]
        setattr(owner, name, value)
        self.applier.undo.append(partial(setattr, owner, name, before))

    def before_its_end(self, call: "Callable[[Any, Any], object]") -> None:
        """Have `call(kind, error)` go before where an exception that ends the program is shown."""
        before = sys.excepthook

        def excepthook(kind: "Any", error: "Any", traceback: "Any") -> None:
            call(kind, error)
            before(kind, error, traceback)

        sys.excepthook = excepthook

        def undo() -> None:
            if sys.excepthook is excepthook:
                sys.excepthook = before

        self.applier.undo.append(undo)

    def wrapped(self, model: "Any") -> None:
        """The program has put a model in DistributedDataParallel."""
        self._models.append(weakref.ref(model))

    def models(self) -> "list[Any]":
        """The models in DistributedDataParallel that live, in the order in which they were made."""
        return [model for model in (one() for one in self._models) if model is not None]
