"""Iterates until it is told to stop, and says which signals it got and what came out wrong."""

import os
import signal
import sys

from pipeline import Add, Numbers
from torch.utils.data import DataLoader

HANDLE = "--handle" in sys.argv


def got(number, frame):
    os.write(1, f"got {signal.Signals(number).name}\n".encode())
    if number == signal.SIGTERM:
        raise SystemExit(3)


def main():
    if HANDLE:
        for name in ("INT", "TERM", "HUP", "USR1", "USR2"):
            signal.signal(getattr(signal, f"SIG{name}"), got)
    workers = {"num_workers": 2, "persistent_workers": True}
    data = Numbers(32, [Add(1)])
    loaders = [
        DataLoader(data, batch_size=4, collate_fn=list),
        DataLoader(data, batch_size=4, collate_fn=list, **workers),
    ]
    right = [list(range(first + 1, first + 5)) for first in range(0, 32, 4)]
    for loader in loaders:
        list(loader)
    # No worker is started after this: Python loses a Ctrl-C that comes while it forks.
    os.write(1, b"ready\n")
    while True:
        for loader in loaders:
            if list(loader) != right:
                os.write(1, b"wrong\n")


if __name__ == "__main__":
    main()
