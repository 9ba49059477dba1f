"""Two workers on one core, with another process: operations that compute, sleep, or have help."""

import hashlib
import os
import subprocess
import sys
import threading
import time

from torch.utils.data import DataLoader, Dataset

MS = 1_000_000
# Computes on their core until its parent has ended.
_BUSY = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
parent = os.getppid()
while os.getppid() == parent:
    pass
"""


def run_delay_ns():
    with open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1])


class Compute:
    """Computes until its thread has lacked a core for 5 ms."""

    def __call__(self, value):
        end = run_delay_ns() + 5 * MS
        while run_delay_ns() < end:
            pass
        return value


class Sleep:
    def __call__(self, value):
        time.sleep(0.01)
        return value


class Helped:
    """Waits for a thread that computes for 5 ms."""

    def __call__(self, value):
        helper = threading.Thread(target=self.compute)
        helper.start()
        helper.join()
        return value

    def compute(self):
        end, data = time.thread_time_ns() + 5 * MS, bytes(1 << 16)
        while time.thread_time_ns() < end:
            hashlib.sha256(data).digest()  # without the interpreter lock


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Numbers(Dataset):
    def __init__(self):
        self.transform = Compose([Compute(), Sleep(), Helped()])

    def __len__(self):
        return 48

    def __getitem__(self, index):
        return self.transform(index)


def share_a_core(worker):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


if __name__ == "__main__":
    busy = subprocess.Popen([sys.executable, "-S", "-c", _BUSY])
    try:
        for _ in DataLoader(Numbers(), batch_size=4, num_workers=2, worker_init_fn=share_a_core):
            pass
    finally:
        busy.kill()
        busy.wait()
