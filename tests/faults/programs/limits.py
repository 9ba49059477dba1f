"""With how few descriptors an epoch gets by: 3 are open when it begins."""

import os
import resource
import threading
import time

from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __init__(self):
        self.transform = str

    def __len__(self):
        return 12

    def __getitem__(self, index):
        os.close(os.open("/dev/null", os.O_RDONLY))
        return self.transform(index)


def settle():
    """Wait for the threads of torch's queues, which close what is theirs when they end."""
    while any("Feeder" in thread.name for thread in threading.enumerate()):
        time.sleep(0.001)


def main():
    list(DataLoader(Numbers(), num_workers=1))  # multiprocessing keeps some
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    for workers in (0, 1):
        loader = DataLoader(Numbers(), batch_size=4, collate_fn=list, num_workers=workers)
        settle()
        for more in reversed(range(24)):
            resource.setrlimit(resource.RLIMIT_NOFILE, (3 + more, before[1]))
            try:
                print(workers, more, list(loader), flush=True)
            except OSError as error:
                print(workers, more, error.strerror, flush=True)
                break
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, before)
            settle()


if __name__ == "__main__":
    main()
