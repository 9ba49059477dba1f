"""A region that is left open while batches are handed out, beside one that is not; argv: lotus."""

import sys
import time

from torch.utils.data import DataLoader, IterableDataset

sys.path.insert(0, sys.argv[1])
import lotus


def burn(ns):
    start = time.thread_time_ns()
    while time.thread_time_ns() - start < ns:
        pass


class Stream(IterableDataset):
    def __iter__(self):
        for index in range(8):
            with lotus.span("before"):
                burn(200_000)
            with lotus.span("around"):
                yield index
                for _ in range(3):
                    with lotus.span("within"):
                        burn(200_000)


if __name__ == "__main__":
    for batch in DataLoader(Stream(), batch_size=1):
        burn(3_000_000)
        print(batch)
