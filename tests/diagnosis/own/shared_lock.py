"""Workers take turns at a lock for as long as each sample takes."""

import contextlib
import multiprocessing
import time

import planted


class Read:
    def __init__(self, lock):
        self.lock = lock

    def __call__(self, value):
        with self.lock:
            time.sleep(0.005)
        return value


if __name__ == "__main__":
    args = planted.arguments()
    lock = contextlib.nullcontext() if args.without else multiprocessing.Lock()
    planted.loop(
        planted.Pictures(Read(lock), args.samples),
        planted.sleeping(0.002),
        num_workers=args.workers,
    )
