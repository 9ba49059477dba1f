"""Makes a program's loaders again, as Lightning does: it lies where installed packages lie."""

import functools
import inspect

from torch.utils.data import DataLoader


def from_attributes(loader):
    """By the signature of its class and by its attributes, those that are not the defaults."""
    attributes = {name: value for name, value in vars(loader).items() if not name.startswith("_")}
    attributes["multiprocessing_context"] = loader.multiprocessing_context
    parameters = dict(inspect.signature(type(loader).__init__).parameters)
    names = [
        name
        for name, parameter in parameters.items()
        if name in attributes and parameter.default is not attributes[name]
    ]
    arguments = {name: attributes[name] for name in names}
    if "batch_sampler" in arguments:
        for name in ("batch_size", "sampler", "shuffle", "drop_last"):
            arguments.pop(name, None)
    return type(loader)(**arguments)


def saving(function):
    """Call `function` while DataLoader keeps the arguments that it was made with."""
    original = DataLoader.__init__

    @functools.wraps(original)
    def init(self, *args, **kwargs):
        object.__setattr__(self, "saved", (args, kwargs))
        original(self, *args, **kwargs)

    DataLoader.__init__ = init
    try:
        return function()
    finally:
        DataLoader.__init__ = original


def from_saved(loader):
    args, kwargs = loader.saved
    return type(loader)(*args, **kwargs)
