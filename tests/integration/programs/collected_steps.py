"""Has full collections of garbage in `next` and in training steps, and prints their numbers."""

import gc

from torch.utils.data import DataLoader, Dataset

FULL, count = 2, 0


def note(phase, info):
    global count
    count += phase == "start" and info["generation"] == FULL


def arrived(number):
    if number % 4 == 0:
        gc.collect()
    return number


class Sample:
    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        return arrived, (self.number,)


class Samples(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return Sample(index)


if __name__ == "__main__":
    gc.disable()
    gc.callbacks.append(note)
    # One worker: each `next` receives the batch that it returns.
    batches = iter(DataLoader(Samples(), batch_size=None, num_workers=1))
    for number in range(12):
        before = count
        batch = next(batches)
        in_next, before = count - before, count
        for _ in range(number % 3):
            gc.collect()
        print(batch, in_next, count - before)
    print(next(batches, "end"))
