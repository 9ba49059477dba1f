"""lotus.load: what was recorded, whichever kind of recording it is."""

import os

from lotus import run, sweep


def load(path: str | os.PathLike[str]) -> run.Run | sweep.Sweep:
    """Read the directory of a run (`lotus trace`), or of a sweep (`lotus sweep`).

    Raises LotusError, with one line that names the next step, where there is nothing that this
    version can read. A run in which no DataLoader was iterated has empty tables.
    """
    return sweep.load(path) if sweep.is_sweep(path) else run.load(path)
