"""The definitions of `lotus.load` and `lotus.Run`."""

import os

from lotus.reading import run
from lotus.reading.run import Run
from lotus.sweep import sweep_record

__all__ = ["Run", "load"]


def load(path: str | os.PathLike[str], trust: bool = False) -> Run | sweep_record.Sweep:
    """Read the directory of a run (`lotus trace`), or of a sweep (`lotus sweep`).

    `trust` is as --trust of `lotus report`: it is needed only for the samples of a run that
    somebody else recorded, or that was moved (see `Run.trusted`).

    Raises LotusError, with one line that names the next step, where there is nothing that this
    version can read. A run in which no DataLoader was iterated has empty tables.
    """
    if sweep_record.is_sweep(path):
        return sweep_record.load(path, trust)
    return run.load(path, trust)
