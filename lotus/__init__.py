"""lotus: where a PyTorch training's data loading spends its time.

``lotus.load(path)``   read a run directory as pandas DataFrames: a `lotus.Run`; of a sweep: a
                       `lotus.sweep.Sweep`
``lotus.trace(path)``  record from inside a script or notebook, as a context manager
``lotus.span(name)``   label a region of a data set's code, as a context manager or decorator
``lotus.plot``         every figure of a run or sweep, on matplotlib's Axes
``lotus.tune(loader)`` search a DataLoader's settings: a `lotus.tune.result.Result`
"""

import importlib

TYPE_CHECKING = False  # as in `typing`, whose import would cost more than all of this
if TYPE_CHECKING:
    from lotus import plot
    from lotus.recordings import load
    from lotus.run import Run
    from lotus.session import trace
    from lotus.spans import span
    from lotus.tune import Package

    tune: Package  # a package that can be called, which a type checker does not see of a module

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "load", "plot", "span", "trace", "tune"]

_LAZY = {
    "Run": "lotus.run",
    "load": "lotus.recordings",
    "span": "lotus.spans",
    "trace": "lotus.session",
}

_PACKAGES = ("plot", "tune")


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return importlib.import_module(f"lotus.{name}")  # which sets it here
    if name not in _LAZY:
        raise AttributeError(f"module 'lotus' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_PACKAGES})
