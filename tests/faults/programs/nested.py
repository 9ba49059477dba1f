"""Starts a traced program of its own, and records a part of itself: argv is where to."""

import subprocess
import sys

from torch.utils.data import DataLoader

import lotus

ITSELF = (
    "from torch.utils.data import DataLoader; print(list(DataLoader([3, 4, 5], collate_fn=sum)))"
)


def main():
    within, block = sys.argv[1:]
    print(list(DataLoader([1, 2], collate_fn=sum)), flush=True)
    command = [sys.executable, "-m", "lotus", "trace", "-q", "-o", within, "--"]
    subprocess.run([*command, sys.executable, "-c", ITSELF], check=True)
    with lotus.trace(block):
        print(list(DataLoader([6, 7], collate_fn=sum)), flush=True)
    print(list(DataLoader([8], collate_fn=sum)), flush=True)


if __name__ == "__main__":
    main()
