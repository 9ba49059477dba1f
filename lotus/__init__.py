"""lotus: where a PyTorch training's data loading spends its time.

``lotus.load(path)``   read a run directory as pandas DataFrames: a `lotus.Run`; of a sweep: a
                       `lotus.Sweep`
``lotus.trace(path)``  record from inside a script or notebook, as a context manager, which gives
                       a `lotus.Recording`
``lotus.span(name)``   label a region of a data set's code, as a context manager or decorator
``lotus.plot``         every figure of a run or sweep, on matplotlib's Axes
``%load_ext lotus``     in a notebook: a cell that begins with %%lotus is traced
``lotus.tune(loader)`` search a DataLoader's settings: a `lotus.tune.Result`

What cannot be done raises `lotus.LotusError`, whose text is one line with the next step.
"""

import importlib

from lotus.common import notebook
from lotus.common.version import __version__

TYPE_CHECKING = False  # as in `typing`, whose import would cost more than all of this
if TYPE_CHECKING:
    from lotus import plot
    from lotus.api import Run, load
    from lotus.common.errors import LotusError
    from lotus.recording.session import Recording, trace
    from lotus.recording.span import span
    from lotus.sweep import Sweep
    from lotus.tune import Package

    tune: Package  # a package that can be called, which a type checker does not see of a module

__all__ = [
    "LotusError",
    "Recording",
    "Run",
    "Sweep",
    "__version__",
    "load",
    "plot",
    "span",
    "trace",
    "tune",
]

_LAZY = {
    "LotusError": "lotus.common.errors",
    "Recording": "lotus.recording.session",
    "Run": "lotus.api",
    "Sweep": "lotus.sweep.sweep_record",
    "load": "lotus.api",
    "span": "lotus.recording.span",
    "trace": "lotus.recording.session",
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


def _run_html(run: object) -> str:
    from lotus.reporters.run.notebook_view import run_html  # only where a notebook asks for it

    return run_html(run)


notebook.run_html = _run_html


def load_ipython_extension(shell: object) -> None:
    """Add the magic %%lotus to a notebook: `%load_ext lotus`."""
    from lotus.integrations import ipython_magic

    ipython_magic.register(shell)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_PACKAGES})
