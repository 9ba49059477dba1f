"""An operation that ends its process in some way, or changes the clock: argv says what, and where.

Prints what came of it; the main process may end in it. Of several cases each has a child.
"""

import gc
import os
import sys
import time

from torch.utils.data import DataLoader, Dataset

WHAT, WORKERS = sys.argv[1], int(sys.argv[2])
NOW = {name: getattr(time, name) for name in ("time", "time_ns")}


def jump(seconds):
    """As where somebody sets the machine's clock: to the program it is another time from now on."""
    time.time = lambda: NOW["time"]() + seconds
    time.time_ns = lambda: NOW["time_ns"]() + seconds * 10**9


class Odd:
    def __call__(self, value):
        if value == 9:
            if WHAT == "_exit":
                os._exit(5)
            if WHAT == "exit":
                sys.exit(6)
            if WHAT == "abort":
                import resource

                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                os.abort()
            if WHAT == "stop":  # a worker that never answers
                import signal

                os.kill(os.getpid(), signal.SIGSTOP)
        if WHAT == "clock":
            jump((-1) ** value * 10**9)
        if WHAT == "raise" and value == 9:
            raise ValueError(f"no picture {value}")
        return value


class Numbers(Dataset):
    def __init__(self):
        self.transform = Odd()

    def __len__(self):
        return 16

    def __getitem__(self, index):
        return self.transform(index)


def main():
    patience = {"timeout": 300} if WHAT == "stop" else {}
    loader = DataLoader(Numbers(), batch_size=2, collate_fn=list, num_workers=WORKERS, **patience)
    for _ in range(2):
        taken = []
        try:
            iterator = iter(loader)
            for batch in iterator:
                taken.append(batch)
                if WHAT == "stop":  # the worker has started; it may stop before it has sent all
                    iterator._timeout = 3
        except (RuntimeError, ValueError) as error:
            print(type(error).__name__, str(error).count("no picture"), len(taken) <= 4, flush=True)
        else:
            print(taken, flush=True)
        iterator = None  # gone before the next one begins
    if WHAT == "stop":  # torch waits for the stopped one for ever where it ends by itself
        import multiprocessing

        for child in multiprocessing.active_children():
            child.kill()


if __name__ == "__main__":
    gc.freeze()  # else each child would look through all of torch at its end
    cases = list(zip(sys.argv[1::2], map(int, sys.argv[2::2]), strict=True))
    for WHAT, WORKERS in cases if len(cases) > 1 else ():
        print(f"== {WHAT} {WORKERS}", flush=True)
        child = os.fork()
        if not child:
            break
        print(f"ended {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}", flush=True)
    else:
        if len(cases) > 1:
            sys.exit()
    main()
