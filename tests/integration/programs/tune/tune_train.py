"""A training whose loader waits for its samples; prints what it trained on.

Arguments: `workers=N`, `epochs=N`, `batches=N` of an epoch, `persistent`, `nothing` (iterate no
loader), `exit=CODE`, `wait=SECONDS` a sample, `finally` (say so where the end runs it), `handler`
(raise an exception at SIGUSR1, and exit with 9), `nested` (iterate a loader for each sample),
`leave=N` (leave an epoch after so many batches), `step=SECONDS` a batch, `new` (make the loader
for each epoch), `peek=N` (begin another epoch after so many batches, for one), `fork=N` (a child
goes on with the epoch too), `method=NAME` (of starting workers), `torch_threads=N` (print those
of each batch), `raise=N` (an exception after so many batches), `stream` (an iterable data set),
`keep` (the iterator of the epoch before), `after=SECONDS` (do something else after the training).
"""

import os
import signal
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset

words = dict((*word.split("=", 1), "")[:2] for word in sys.argv[1:])
WAIT_S = float(words.get("wait", 0.0))
RANK = int(os.environ.get("RANK", 0))
RANKS = int(os.environ.get("WORLD_SIZE", 1))


class Far(Dataset):
    """Samples that are waited for, as from remote storage."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        time.sleep(WAIT_S)
        if "nested" in words:
            next(iter(DataLoader(range(self.samples))))
        return torch.tensor([index, index])


class Stream(IterableDataset):
    """The same samples, as a stream."""

    def __init__(self, far):
        self.far = far

    def __iter__(self):
        return map(self.far.__getitem__, range(len(self.far)))


class Check(Dataset):
    """A smaller data set, as for validation."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return index


class Stop(Exception):
    pass


def stop(number, frame):
    raise Stop


def main():
    if "handler" in words:
        signal.signal(signal.SIGUSR1, stop)
    torch.manual_seed(7)
    if "torch_threads" in words:
        torch.set_num_threads(int(words["torch_threads"]))
    workers = int(words.get("workers", 0))
    data = Far(4 * RANKS * int(words.get("batches", 16)))
    sampler = DistributedSampler(data, RANKS, RANK) if RANKS > 1 else None
    data = Stream(data) if "stream" in words else data
    check = DataLoader(Check(), batch_size=1)

    def loader():
        train = DataLoader(
            data,
            batch_size=4,
            shuffle=sampler is None and "stream" not in words,
            sampler=sampler,
            num_workers=workers,
            persistent_workers="persistent" in words,
            multiprocessing_context=words.get("method"),
        )
        return train

    train = loader()
    for _ in check:
        pass
    cores = len(os.sched_getaffinity(0))
    seen, threads, forked = [], [], None
    for _ in range(0 if "nothing" in words else int(words.get("epochs", 2))):
        batches = iter(train) if "keep" in words else train
        for batch in batches:
            seen.append(batch[:, 0].tolist())
            threads.append(torch.get_num_threads())
            time.sleep(float(words.get("step", 0)))
            if len(seen) == int(words.get("peek", -1)):
                seen.append(next(iter(train))[:, 0].tolist())
            if len(seen) == int(words.get("fork", -1)):
                forked = os.fork()
            if len(seen) == int(words.get("raise", -1)):
                raise Stop
            if len(seen) == int(words.get("leave", -1)):
                break
        if forked == 0:
            os._exit(0)
        threads.append(torch.get_num_threads())
        seen.append(round(torch.rand(1).item(), 6))
        train = loader() if "new" in words else train
        for _ in check:
            pass
    time.sleep(float(words.get("after", 0)))
    print(f"rank {RANK} trained on {seen}")
    if "torch_threads" in words:
        print(f"threads {threads}")
    print(f"rank {RANK} with {train.num_workers} workers, cores changed by", end=" ")
    print(len(os.sched_getaffinity(0)) - cores, flush=True)


if __name__ == "__main__":
    try:
        main()
    except Stop:
        print("handled", *([torch.get_num_threads()] if "torch_threads" in words else []))
        sys.stdout.flush()
        sys.exit(9)
    finally:
        if "finally" in words:
            print("finally", flush=True)
    sys.exit(int(words.get("exit", 0)))
