"""Loops whose NVTX ranges a stand-in notes, one line each, in a file per process.

With "missing" the library fails as one of a build of torch without NVTX does.
"""

import os
import sys

import torch.cuda.nvtx
from torch.utils.data import DataLoader, Dataset


def push(name):
    note(f"+{name}")


def pop():
    note("-")


def note(word):
    if sys.argv[1] == "missing":
        raise RuntimeError("NVTX functions not installed")
    with open(f"{os.environ['TRUTH']}.{os.getpid()}", "a") as file:
        file.write(f"{word}\n")


# Not only under __main__: spawned workers run the module as another name.
torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop = push, pop
sys.modules["nvtx"] = None


class Add:
    def __call__(self, value):
        return value + 1


class Refuse:
    def __call__(self, value):
        if value == 4:
            raise ValueError("four")
        return value


class Both:
    def __init__(self):
        self.transforms = [Add(), Refuse()]

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Numbers(Dataset):
    def __init__(self):
        self.transform = Both()

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.transform(index)


def main():
    for context in sys.argv[2:]:
        workers = (
            {} if context == "none" else {"num_workers": 1, "multiprocessing_context": context}
        )
        try:
            for batch in DataLoader(Numbers(), batch_size=2, **workers):
                print(context, batch.tolist(), flush=True)
        except ValueError as error:
            print(context, str(error).splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
