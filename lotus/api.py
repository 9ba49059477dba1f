"""The definitions of `lotus.load` and `lotus.Run`."""

import os

from lotus.reading import run
from lotus.reading.run import Run
from lotus.sweep import sweep_record

__all__ = ["Run", "load"]


def load(path: str | os.PathLike[str]) -> Run | sweep_record.Sweep:
    """Read the directory of a run (`lotus trace`), or of a sweep (`lotus sweep`).

    Raises LotusError, with one line that names the next step, where there is nothing that this
    version can read. A run in which no DataLoader was iterated has empty tables.
    """
    return sweep_record.load(path) if sweep_record.is_sweep(path) else run.load(path)
