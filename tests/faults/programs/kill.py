"""Somebody is killed in the middle of an epoch: argv names who, and how the workers start."""

import os
import signal
import sys

from torch.utils.data import DataLoader, Dataset

VICTIM, METHOD = sys.argv[1:]


class Add:
    def __call__(self, value):
        return value + 1


class Numbers(Dataset):
    def __init__(self):
        self.transform = Add()

    def __len__(self):
        return 48

    def __getitem__(self, index):
        if index == 27:  # batch 9, the fifth of worker 1
            if VICTIM == "worker":
                os.kill(os.getpid(), signal.SIGKILL)
            if VICTIM == "itself":
                os._exit(5)
        return self.transform(index)


def main():
    loader = DataLoader(
        Numbers(), batch_size=3, num_workers=2, collate_fn=list, multiprocessing_context=METHOD
    )
    taken = []
    try:
        for number, batch in enumerate(loader):
            taken.append(batch)
            if number == 5 and VICTIM == "main":
                print(taken, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            if number == 5 and VICTIM == "lotus" and "LOTUS_RUN" in os.environ:
                os.kill(os.getppid(), signal.SIGKILL)
    except RuntimeError as error:
        print(type(error).__name__)  # how far it came depends on the moment
    else:
        print(taken)


if __name__ == "__main__":
    main()
