"""One operation asks for more memory than there is: argv says who may have how much.

"limit": RLIMIT_AS of the whole process, 300 MB beside what it has; "cgroup": one is
set from outside.
"""

import contextlib
import gc
import resource
import sys

from torch.utils.data import DataLoader, Dataset

HOW, WORKERS = sys.argv[1], int(sys.argv[2])


class Greedy:
    def __call__(self, value):
        if value == 9:
            if HOW == "cgroup":  # whatever else is large, the kernel is to choose this process
                with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
                    file.write("1000")
            return len(b"x" * (1 << 30))
        return value


class Numbers(Dataset):
    def __init__(self):
        self.transform = Greedy()

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return self.transform(index)


def limit():
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (300 << 20), resource.RLIM_INFINITY))


def main():
    if HOW == "limit":
        limit()
    loader = DataLoader(Numbers(), batch_size=2, collate_fn=list, num_workers=WORKERS)
    for _ in range(2):
        try:
            for batch in loader:
                print(batch, flush=True)
        except MemoryError as error:
            print(type(error).__name__, flush=True)
        except RuntimeError as error:
            print(type(error).__name__, str(error).count("killed"), flush=True)
        # torch's iterator is in a cycle by now. A worker of the next epoch that collects its copy
        # prints an error of torch's, whenever Python's collector happens to run there.
        gc.collect()


if __name__ == "__main__":
    main()
