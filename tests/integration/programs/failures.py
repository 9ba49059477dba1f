"""Loops that fail or warn, each in a forked child that ends as it will; prints how it ended.

Arguments: the cases, as `op.0` (in the main process) or `op.1` (in a worker). A case alone, after
`alone`, runs in this process.
"""

import gc
import multiprocessing
import os
import sys
import threading
import time
import traceback
import warnings

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info


class Compose:
    def __init__(self, *transforms):
        self.transforms = list(transforms)

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Tensor:
    def __call__(self, value):
        return torch.full((2,), float(value))


class Odd(Exception):
    """Cannot be made again from its message."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


class Fails:
    def __init__(self, error=None):
        self.error = error or ValueError("bad picture")

    def __call__(self, value):
        if 4 in value:
            raise self.error
        return value


class Chains(Fails):
    def __call__(self, value):
        try:
            return super().__call__(value)
        except ValueError as error:
            raise RuntimeError("while augmenting") from error


class Needs:
    def __call__(self, value, other):
        return value + other


class Warns:
    def __init__(self, level):
        self.level = level

    def __call__(self, value):
        warnings.warn(f"level {self.level}", stacklevel=self.level)
        return value


class Numbers(Dataset):
    def __init__(self, *transforms):
        self.transform = Compose(Tensor(), *transforms)

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return self.transform(index)


class Single(Numbers):
    """Its only transform is a function."""

    def __init__(self, transform):
        self.transform = transform


class Keys(Numbers):
    def __getitem__(self, index):
        return {"a": super().__getitem__(index)}[index * "b" or "a"]


class Many(Numbers):
    def __getitems__(self, indices):
        raise OSError(5, "broken", f"shard-{indices[0]}")


class Uneven(Numbers):
    def __getitem__(self, index):
        return torch.zeros(1 + index // 4)


class Stream(IterableDataset):
    def __repr__(self):
        return "the stream"

    def __len__(self):
        return 2

    def __iter__(self):
        yield from (torch.tensor(number) for number in range(3))
        if FAILS:
            raise EOFError("the shard is cut short")


TAKEN = None  # an event of this case: the batch before that of index 4 was


class Leaves(Numbers):
    """Ends its process in the middle of a sample, while the main process waits for it."""

    def __init__(self, leave):
        self.leave = leave

    def __getitem__(self, index):
        if index == 4:
            TAKEN.wait()
            while get_worker_info() and not sleeps(os.getppid()):
                time.sleep(0.001)
            self.leave()
        return index


def sleeps(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "S"


class Slow(Numbers):
    def __getitem__(self, index):
        time.sleep(index)
        return index


class Warning1(Numbers):
    def __getitem__(self, index):
        for level in range(1, 7):
            warnings.warn(f"from the data set, level {level}", stacklevel=level)
        return index


FAILS = False


def double(value):
    return int("x") if 4 in value else value * 2


def collate(samples):
    if 4 in samples[0] or 4 in samples[-1]:
        raise TypeError("cannot collate")
    return samples


def collate_warns(samples):
    for level in range(1, 5):
        warnings.warn(f"from collate, level {level}", stacklevel=level)
    return samples


def sampler():
    yield from range(5)
    raise IndexError("no more of these")


def init(worker):
    raise PermissionError(f"worker {worker} may not start")


def loop(data, **kwargs):
    number = -1
    for number, batch in enumerate(DataLoader(data, batch_size=2, **kwargs)):
        print(number, batch)
        if number == 1:
            TAKEN.set()
    print("not reached" if number < 0 else "end")


def in_thread(data, **kwargs):
    thread = threading.Thread(target=loop, args=(data,), kwargs=kwargs, name="loader")
    thread.start()
    thread.join()


def with_hook(data, **kwargs):
    """A program with a sys.excepthook of its own."""

    def shown(kind, value, trace):
        frames = [(frame.name, frame.lineno) for frame in traceback.extract_tb(trace)]
        print("hook", kind.__name__, str(value)[:20], frames)
        chain = traceback.extract_tb(value.__traceback__)
        print("hook", [(frame.name, frame.lineno) for frame in chain] == frames)

    sys.excepthook = shown
    loop(data, **kwargs)


def goes_on(data, **kwargs):
    """Catches what comes out of a batch and takes the next one."""
    iterator = iter(DataLoader(data, batch_size=2, **kwargs))
    for _ in range(6):
        try:
            print(next(iterator))
        except StopIteration:
            break
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            print("caught", type(error).__name__, str(error).splitlines()[-1], last.name)
            print(error.__context__, error.__cause__)
    print("went on")


def warn_in(data, **kwargs):
    warnings.simplefilter("always")
    loop(data, **kwargs)


def warn_fails(data, **kwargs):
    warnings.simplefilter("error")
    loop(data, **kwargs)


def leave_loop(data, **kwargs):
    for _ in DataLoader(data, batch_size=2, **kwargs):
        sys.exit(3)


def streams(**kwargs):
    global FAILS
    FAILS = True
    loop(Stream(), **kwargs)


def longer(**kwargs):
    loader = DataLoader(Stream(), batch_size=1, **kwargs)
    print(len(loader))
    for batch in loader:
        print(batch)


def interrupt():
    raise KeyboardInterrupt


def leave():
    os._exit(5)


CASES = {
    "op": lambda **k: loop(Numbers(Fails()), **k),
    "nested": lambda **k: loop(Numbers(Compose(Fails())), **k),
    "function": lambda **k: loop(Numbers(double), **k),
    "lambda": lambda **k: loop(Numbers(lambda value: value.nothing), **k),
    "single": lambda **k: loop(Single(double), **k),
    "arguments": lambda **k: loop(Numbers(Needs()), **k),
    "odd": lambda **k: loop(Numbers(Fails(Odd(1, 2))), **k),
    "chain": lambda **k: loop(Numbers(Chains()), **k),
    "dataset": lambda **k: loop(Keys(), **k),
    "getitems": lambda **k: loop(Many(), **k),
    "collate": lambda **k: loop(Numbers(), collate_fn=collate, **k),
    "default_collate": lambda **k: loop(Uneven(), **{**k, "sampler": [0, 1, 3, 4]}),
    "iterable": streams,
    "sampler": lambda **k: loop(Numbers(), sampler=sampler(), **k),
    "stop": lambda **k: loop(Numbers(Fails(StopIteration("early"))), **k),
    "init": lambda **k: loop(Numbers(), worker_init_fn=init, **k),
    "exit": lambda **k: leave_loop(Numbers(), **k),
    "exit_inside": lambda **k: loop(Leaves(sys.exit), **k),
    "interrupt": lambda **k: loop(Leaves(interrupt), **k),
    "killed": lambda **k: loop(Leaves(leave), **k),
    "timeout": lambda **k: loop(Slow(), timeout=0.2, **k),
    "persistent": lambda **k: loop(Numbers(Fails()), persistent_workers=True, **k),
    "thread": lambda **k: in_thread(Numbers(Fails()), **k),
    "hook": lambda **k: with_hook(Numbers(Fails()), **k),
    "goes_on": lambda **k: goes_on(Numbers(Fails()), **k),
    "warn": lambda **k: warn_in(Numbers(*map(Warns, range(1, 6))), **k),
    "warn_once": lambda **k: loop(Numbers(Warns(2), Compose(Warns(2))), **k),
    "warn_dataset": lambda **k: warn_in(Warning1(), **k),
    "warn_collate": lambda **k: warn_in(Numbers(), collate_fn=collate_warns, **k),
    "warn_error": lambda **k: warn_fails(Numbers(Warns(2)), **k),
    "warn_longer": longer,
    "warn_pin": lambda **k: loop(Numbers(), pin_memory=True, **k),
}


def run(case):
    global TAKEN
    TAKEN = multiprocessing.get_context("fork").Event()
    name, _, workers = case.partition(".")
    CASES[name](num_workers=int(workers))


def main(cases):
    if cases[0] == "alone":
        return run(cases[1])
    gc.freeze()  # each child would look through all of torch at its end
    for case in cases:
        print("==", case, flush=True)
        print("==", case, file=sys.stderr, flush=True)
        pid = os.fork()
        if pid == 0:
            return run(case)
        print("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    return None


if __name__ == "__main__":
    assert get_worker_info() is None
    main(sys.argv[1:])
